"""The hottest functions of a configuration, read from what `perf report` prints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from meshmark.place.trial import printable

KEPT: Final = 20  # functions of a configuration
FIELDS: Final = "comm,dso,sym"  # what perf sorts by, in the order in which `read_report` expects it
SAMPLES: Final = 20_000  # of a profile, if the frequency allows: a share of half of them is known to 0.7 %
FREQUENCIES_HZ: Final = (49, 3999)  # odd, so that samples do not keep step with timers of the kernel
_HARNESS: Final = frozenset({"meshmark-place", "perf", "perf-exec"})  # what starts the program
_CONFIDENCE: Final = 0.95
_ADDRESS: Final = re.compile(r"(0x)?[0-9a-f]{8,16}")
_KERNEL: Final = "[kernel.kallsyms]"


@dataclass(frozen=True, slots=True)
class Hot:
    """A function that samples were taken in, without those that it called.

    Attributes:
        object: File that contains it; `kernel` for the kernel.
        share: Of all samples of the program.
        interval: Of the share, 95 %.
    """

    function: str
    object: str
    samples: int
    share: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of one run of a configuration.

    Attributes:
        reason: Why there is none; "" if there is one.
        enable: What would make it available.
        tool: The profiler and its version.
        event: What triggered the samples, such as `cycles` or `cpu-clock`; `:u` means in user mode only.
        frequency_hz: Samples per second of CPU time that were asked for.
        samples: Of the program.
        lost: Samples that the profiler could not write.
        file: Where it is kept; "" if it is not.
        functions: The hottest first.
    """

    configuration: str
    reason: str = ""
    enable: str = ""
    tool: str = ""
    event: str = ""
    frequency_hz: int = 0
    samples: int = 0
    lost: int = 0
    file: str = ""
    functions: tuple[Hot, ...] = field(default=())

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Profile:
        """A profile of a line of the journal.

        Raises:
            ValueError, TypeError: The line is none.
        """
        found = {k: v for k, v in line.items() if k not in ("type", "functions")}
        functions = tuple(Hot(**{**f, "interval": tuple(f.get("interval", ()))}) for f in line.get("functions", ()))
        if any(len(f.interval) != 2 for f in functions):
            raise ValueError("an interval without two ends")
        return Profile(**found, functions=functions)

    def to_json(self) -> dict[str, Any]:
        return {"type": "profile", **asdict(self)}


def frequency_hz(cpu_s: float) -> int:
    """Samples per second with which a run of this CPU time has about `SAMPLES`, within `FREQUENCIES_HZ`."""
    low, high = FREQUENCIES_HZ
    return int(min(max(SAMPLES / max(cpu_s, 1e-3), low), high)) | 1


def wilson(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share.

    Args:
        count: From 0 to `of`, which is at least 1.

    Source:
        Wilson, J. Amer. Statist. Assoc. 22 (1927), 209-212.
    """
    from scipy.stats import binomtest

    low, high = binomtest(count, of).proportion_ci(_CONFIDENCE, "wilson")
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says; `functions` are the hottest `KEPT`."""

    event: str
    samples: int
    lost: int
    functions: tuple[Hot, ...]


def read_report(lines: Iterable[str]) -> Report:
    """Read what `perf report --stdio -n --sort comm,dso,sym` prints with tabs between its columns.

    Samples of the programs that start the command are left out, and those of addresses without a symbol are added up
    for each file.
    """
    counts: Counter[tuple[str, str]] = Counter()
    events: list[str] = []
    lost = 0
    for line in lines:
        if line.startswith("#"):
            if found := re.search(r" of events? '(.+)'", line):
                events.append(_event(found[1]))
            elif found := re.search(r"Total Lost Samples: (\d+)", line):
                lost += int(found[1])
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 5 or not cells[1].isdecimal() or cells[2] in _HARNESS:
            continue
        counts[_function(cells[4]), _object(cells[3])] += int(cells[1])
    total = counts.total()
    # Of equal counts, by name: the same samples give the same list.
    hottest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:KEPT]
    return Report(
        " ".join(dict.fromkeys(events)),
        total,
        lost,
        tuple(Hot(f, o, n, n / total, wilson(n, total)) for (f, o), n in hottest if n),
    )


def _event(text: str) -> str:
    """The name of an event without its precision: `cycles:Pu` is `cycles:u`."""
    name, colon, modifiers = printable(text).partition(":")
    rest = re.sub("[pP]", "", modifiers)
    return name + (colon + rest if rest else "")


def _function(text: str) -> str:
    """A symbol without the mark of its privilege level, such as `[.]` and `[k]`."""
    name = re.sub(r"^\[.\]\s*", "", text)
    return "[unknown]" if not name or _ADDRESS.fullmatch(name) else printable(name)


def _object(text: str) -> str:
    return "kernel" if text.startswith(_KERNEL) else printable(text) or "[unknown]"
