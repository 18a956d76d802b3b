"""Writes commented machine files from key numbers of a machine and fitted parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass

from meshmark.model.fitting.key_numbers import LINE_BYTES, KeyNumber, KeyNumbers, show
from meshmark.values.units import counted


@dataclass(frozen=True, slots=True)
class Parameters:
    """The numbers of a machine file that a fit determines, in the units of the file."""

    access_ns: float
    link_ns: float
    link_gb: float
    channels: int
    channel_gb: float
    stream: int
    outstanding: int
    line_work_ns: float
    turnaround_ns: float
    probe_ns: float


def entry(key: str, value: float, origin: str, text: str) -> str:
    """Return the line of a number of a machine file, with its origin."""
    return f"{key} = {{ value = {value:.6g}, {origin} = {json.dumps(text, ensure_ascii=False)} }}"


def machine_text(numbers: KeyNumbers, chosen: Parameters, name: str) -> str:
    """Return a machine file in which each number states whether it was given, fitted or assumed."""
    writer = _Writer(numbers, chosen)
    parts = [
        *writer.head(name),
        *writer.topology(),
        *writer.network(),
        *writer.cores(),
        *writer.caches(),
        *writer.memory(),
    ]
    return "\n".join(parts) + "\n"


class _Writer:
    def __init__(self, numbers: KeyNumbers, chosen: Parameters) -> None:
        self.numbers, self.chosen = numbers, chosen

    def source(self, *names: str) -> tuple[str, str]:
        """Return the origin of a parameter that was fitted to numbers; it is `assumed` if all these numbers are."""
        numbers = [self.numbers.given[n] for n in names]
        texts = "; ".join(f"{n} {show(n, g.value)}, {g.source}" for n, g in zip(names, numbers, strict=True))
        return ("assumed" if all(g.assumed for g in numbers) else "fitted", texts)

    def fitted(self, key: str, value: float, name: str, otherwise: str) -> str:
        """Return the line of a parameter that was fitted to a number; it is assumed if this number was not given."""
        origin = self.source(name) if name in self.numbers.given else ("assumed", otherwise)
        return entry(key, value, *origin)

    def head(self, name: str) -> list[str]:
        sockets, cores = self.numbers.sockets, self.numbers.cores_each
        title = f"{name}: {counted(sockets, 'socket')} of {counted(cores, 'core')}, from key numbers"
        return [
            f"# A machine to simulate: meshmark model show {name}.toml; meshmark measure latency --on {name}.toml",
            "#",
            "# Its parameters are fitted so that the simulated instruments give the numbers that their origins name.",
            "# `assumed` numbers are guesses: replace them by better ones. All keys: docs/reference/machine-files.md.",
            "",
            "format = 1",
            f"title = {json.dumps(title, ensure_ascii=False)}",
            "",
        ]

    def topology(self) -> list[str]:
        """Return the lines of the topology, in which sockets are routers with a link between them."""
        if self.numbers.sockets == 1:
            return ["[topology]", 'kind = "single"', ""]
        return [
            "# Two sockets with a link between them.",
            "[topology]",
            'kind = "graph"',
            "routers = 2",
            'edges = [[0, 1, "socket"]]',
            'derived = "the number of sockets and cores"',
            "",
        ]

    def network(self) -> list[str]:
        c, lines = self.chosen, []
        if self.numbers.sockets > 1:
            remote = self.source("idle-remote", "idle-local")
            lines += [
                "[links.socket]",
                self.fitted("bandwidth_gb_per_s", c.link_gb, "link", "half of what the memory of a socket gives"),
                entry("latency_ns", c.link_ns, *remote),
                "",
            ]
        return [
            *lines,
            "[router]",
            entry("flit_bytes", 8, "assumed", "usual"),
            entry("pipeline_ns", 0, "assumed", "included in the latency of the links"),
            entry("cycle_ns", 0.1, "assumed", "not limiting"),
            entry("buffer_flits", 8192, "assumed", "not limiting"),
            "",
            "[packets]",
            "request_flits = 1",
            "data_flits = 9",
            "ack_flits = 1",
            f'assumed = "a line of {LINE_BYTES} bytes and a header"',
            "",
        ]

    def cores(self) -> list[str]:
        numbers, c = self.numbers, self.chosen
        core_count = numbers.given["cores"]
        origin = (
            ("assumed", core_count.source)
            if core_count.assumed
            else ("derived", f"{show('cores', core_count.value)} cores, {core_count.source}")
        )
        one_way_ns = (1e9 * numbers.need("idle-local") - c.access_ns) / 2
        kind, text = self.source("idle-local")
        lines = [
            "[node]",
            entry("cpus", numbers.cores_each, *origin),
            entry("controllers", 1, "assumed", "all channels of a node are one controller"),
            "",
            "[cpu]",
        ]
        if (clock := numbers.given.get("clock")) is not None:
            lines += [entry("clock_ghz", clock.value * 1e-9, "published", clock.source)]
        return [
            *lines,
            self.fitted("outstanding", c.outstanding, "loaded", "usual: lines that the loads of a core wait for"),
            self.fitted("stream_outstanding", c.stream, "core-read", "with prefetches, enough for the read bandwidth"),
            self.fitted("line_work_ns", c.line_work_ns, "core-read", "the memory limits a core, not its own work"),
            entry("request_ns", one_way_ns, kind, f"half of what the memory leaves: {text}"),
            entry("fill_ns", one_way_ns, kind, f"half of what the memory leaves: {text}"),
            self.fitted("probe_ns", c.probe_ns, "transfer", "a twentieth of the idle latency"),
            "",
        ]

    def caches(self) -> list[str]:
        cores = self.numbers.cores_each
        clock = (self.numbers.value("clock") or 3e9) * 1e-9
        l1_reason = "four cycles" if "clock" in self.numbers.given else "four cycles of 3 GHz"
        l3 = self.numbers.given.get("l3") or KeyNumber(cores * 2.0 * (1 << 20), "2 MiB per core", assumed=True)
        local = 1e9 * self.numbers.need("idle-local")
        levels: list[tuple[str, KeyNumber, float, str, int]] = [
            ("L1", KeyNumber(32 << 10, "usual", True), 4 / clock, l1_reason, 1),
            ("L2", KeyNumber(1 << 20, "usual", True), 14 / clock, l1_reason.replace("four", "14"), 1),
            ("L3", l3, min(25.0, local / 3), "usual", cores),
        ]
        lines = []
        for level, size, ns, reason, sharers in levels:
            lines += [
                "[[cache]]",
                f'name = "{level}"',
                entry("size_kib", size.value / 1024, "assumed" if size.assumed else "published", size.source),
                entry("latency_ns", ns, "assumed", reason),
            ]
            lines += [entry("shared_by", sharers, "assumed", "the cores of a socket")] if sharers > 1 else []
            lines += [""]
        return lines

    def memory(self) -> list[str]:
        c = self.chosen
        kind, text = self.source("idle-local")
        channels = ("assumed", "about eight channels of a socket")
        if self.numbers.channels is not None:
            channels = ("fitted", "latency at the middle of the loaded curve")
        return [
            "[memory]",
            entry("channels", c.channels, *channels),
            entry("channel_gb_per_s", c.channel_gb, *self.source("read")),
            entry("line_bytes", LINE_BYTES, "assumed", "usual"),
            entry("access_ns", c.access_ns, kind, f"a part of it: {text}"),
            self.fitted("turnaround_ns", c.turnaround_ns, "triad", "nothing is lost between reads and writes"),
            entry("write_batch", 8, "assumed", "usual"),
            entry("queue", 4096, "assumed", "not limiting"),
            "",
            "[coherence]",
            'kind = "snoop"',
        ]
