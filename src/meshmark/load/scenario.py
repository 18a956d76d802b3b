"""Scenarios: which programs run at once, where, from when, and how they were asked to behave.

[scenario]
name = "shared bus"           # sample_s, timeout_s, policy, slots, canary are optional

[[program]]
name = "traffic"
copies = 4
start_s = [0, 0, 5, 5]        # one for all, or one a copy
cpus = "0-3"                  # of every copy, or a list of such, one a copy
run_time_s = 100.0            # prescribed: see prescription.py …
memory_gb_per_s = 2.14

[[program]]
name = "melt"
command = ["lmp", "-in", "melt.in"]    # … or a real command, or file = "traffic.json"
threads = 4
wait_policy = "passive"

[metric.bytes_per_flop]       # a metric of one's own, which programs may prescribe: see metrics.py
formula = "(memory_read_bytes + memory_write_bytes) / flops"
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.metrics import RESERVED, Metrics, all_metrics, metrics_of
from meshmark.load.prescription import Prescription, parse_prescription
from meshmark.load.variants import found, real, text, whole
from meshmark.machine.tree import parse_list
from meshmark.place.native import vocabulary
from meshmark.store.files import parse_toml, read_text

PRIORITIES: Final = ("other", "batch", "idle", "fifo")
WAIT_POLICIES: Final = ("active", "passive")
SLOTS: Final = ("procs", "cores", "threads")
MOST_PROCESSES: Final = 4096
_MAX_BYTES: Final = 1 << 20  # of a scenario's file
_NODES: Final = re.compile(r"(=[0-9,:-]{1,200})?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
# Of a [[program]], whatever it runs.
PROGRAM_KEYS: Final = (
    "name",
    "copies",
    "start_s",
    "cpus",
    "cgroup",
    "nice",
    "priority",
    "policy",
    "threads",
    "wait_policy",
    "memory",
    "memory_mib",
    "env",
    "cwd",
    "oversubscribe",
    "command",
    "file",
)
TABLES: Final = ("scenario", "program", "metric")
SCENARIO_KEYS: Final = ("name", "sample_s", "timeout_s", "policy", "slots", "canary")
CANARY_KEYS: Final = ("before_s", "after_s", "during")


@dataclass(frozen=True, slots=True)
class Canary:
    """When a fixed piece of work is timed, to tell whether the machine was quiet. 0 s and False: not."""

    before_s: float = 0.5
    after_s: float = 0.5
    during: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A program of a scenario; exactly one of `command`, `file` and `prescription` is there."""

    name: str
    command: tuple[str, ...] = ()
    file: Path | None = None  # of a program that was synthesised before
    prescription: Prescription | None = None
    copies: int = 1
    start_s: tuple[float, ...] = (0.0,)  # one a copy
    cpus: tuple[tuple[int, ...], ...] = ((),)  # one a copy; empty: wherever the scenario may run
    cgroup: str = ""
    nice: int = 0
    priority: str = "other"
    policy: str = ""  # of meshmark run --bind; "": the scenario's
    threads: int = 1
    wait_policy: str = ""
    memory: str = ""  # of meshmark run --memory
    memory_mib: float | None = None  # of one copy, where that was said
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    oversubscribe: bool = False

    @property
    def synthesised(self) -> bool:
        return not self.command

    def one(self, copy: int = 0) -> Member:
        """One copy of it by itself, from the beginning."""
        return replace(self, copies=1, start_s=(0.0,), cpus=(self.cpus[copy],))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    programs: tuple[Member, ...]
    name: str = "scenario"
    sample_s: float = 0.1
    timeout_s: float = 0.0  # after the clock started; 0: none
    policy: str = ""  # for programs without cpus and policy of their own; "": not bound
    slots: str = "cores"
    canary: Canary = Canary()
    metrics: Metrics = field(default_factory=dict)  # a user's own: of its file, and those that were given beside it

    @property
    def processes(self) -> int:
        return sum(p.copies for p in self.programs)

    def member(self, name: str) -> Member:
        """
        Raises:
            UsageError: there is none of that name.
        """
        for p in self.programs:
            if p.name == name:
                return p
        raise UsageError(f"program: found {found(name)}; the scenario has {', '.join(p.name for p in self.programs)}")

    def alone(self, name: str, copy: int = 0) -> Scenario:
        """One copy of one program by itself: what it is compared with."""
        return replace(self, name=f"{self.name}: {name} alone", programs=(self.member(name).one(copy),))


def read_scenario(path: Path, own: Metrics | None = None) -> Scenario:
    """A scenario from its file; files that it names are relative to its folder.

    Args:
        own: metrics of the user's that it may prescribe beside the shipped ones and those of the file.

    Raises:
        UsageError: one line that names the file, the key, what was found and what is allowed.
    """
    return parse_scenario(read_text(path, _MAX_BYTES), str(path), own, path.parent)


def parse_scenario(said: str, where: str, own: Metrics | None = None, folder: Path = Path()) -> Scenario:
    """A scenario from TOML text.

    Args:
        where: what errors call the text.
        own: metrics of the user's that it may prescribe beside the shipped ones and those of the text.
        folder: what names of files are relative to.

    Raises:
        UsageError: one line that names the key, what was found and what is allowed.
    """
    raw = parse_toml(said, where)
    try:
        return _scenario(raw, where, _own_metrics(raw.pop("metric", {}), where, own or {}), folder)
    except UsageError:
        raise
    except MeshmarkError as why:
        raise UsageError(str(why)) from why


def _own_metrics(tables: object, where: str, given: Metrics) -> Metrics:
    """Of the text and those given beside it."""
    found = metrics_of(tables, where)
    for name in found:
        if name in given:
            raise UsageError(f"{where}: metric.{name}: found here and with --metrics; allowed is one of them")
    own = {**given, **found}
    for name in own:
        if name in PROGRAM_KEYS:
            raise UsageError(f"{where}: metric.{name}: found a name that is a key of [[program]]; allowed is another")
    return own


def _known(raw: Mapping[str, Any], where: str, allowed: Collection[str]) -> None:
    for key in raw:
        if key not in allowed:
            raise UsageError(f"{where}: {shown(key)}: unknown key; {_meant(key, allowed)}")


def shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= 60 else found(key)


def _meant(key: str, allowed: Collection[str]) -> str:
    near = difflib.get_close_matches(key, sorted(allowed), 1, 0.5)
    return f"did you mean {near[0]}?" if near else "allowed are " + ", ".join(allowed)


def _one_of(value: object, what: str, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        also = ""
        if isinstance(value, str) and (near := difflib.get_close_matches(value, allowed, 1, 0.5)):
            also = f"; did you mean {near[0]}?"
        raise UsageError(f"{what}: found {found(value)}; allowed are {', '.join(allowed)}{also}")
    return value


def _truth(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{what}: found {found(value)}; allowed are true and false")
    return value


def _policy(value: object, what: str) -> str:
    """A policy's name and modifiers; whether they can be had is the native program's to say."""
    return text(value, what, 200)


def _scenario(raw: Mapping[str, Any], where: str, own: Metrics, folder: Path) -> Scenario:
    _known(raw, where, TABLES)
    metrics = all_metrics(own)
    head = raw.get("scenario", {})
    at = f"{where}: scenario"
    if not isinstance(head, dict):
        raise UsageError(f"{at}: found {found(head)}; allowed is a table [scenario]")
    _known(head, at, SCENARIO_KEYS)
    kept: dict[str, Any] = {}
    if "name" in head:
        kept["name"] = text(head["name"], f"{at}: name", 60)
    if "sample_s" in head:
        kept["sample_s"] = real(head["sample_s"], f"{at}: sample_s", 0.005, 60)
    if "timeout_s" in head:
        kept["timeout_s"] = real(head["timeout_s"], f"{at}: timeout_s", 0.01, 1e6)
    if "policy" in head:
        kept["policy"] = _policy(head["policy"], f"{at}: policy")
    if "slots" in head:
        kept["slots"] = _one_of(head["slots"], f"{at}: slots", SLOTS)
    if "canary" in head:
        kept["canary"] = _canary(head["canary"], f"{at}: canary")
    tables = raw.get("program", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise UsageError(f"{where}: program: found {found(tables)}; allowed are tables [[program]], at least one")
    members: list[Member] = []
    for i, table in enumerate(tables):
        name = table.get("name", f"program{i + 1}" if len(tables) > 1 else "program")
        name = text(name, f"{where}: program {i + 1}: name", 60)
        if not re.fullmatch(r"[\w .:+#@-]+", name) or name.strip() != name or name.startswith("."):
            raise UsageError(
                f"{where}: program {i + 1}: name: found {found(name)}; allowed are letters, digits and . : + # @ - _"
            )
        if any(m.name == name for m in members):
            raise UsageError(f"{where}: program {i + 1}: name: found {found(name)}, which another program has")
        members.append(_member(table, f"{where}: program {name}", name, metrics, folder))
    scenario = Scenario(programs=tuple(members), metrics=own, **kept)
    if scenario.processes > MOST_PROCESSES:
        raise UsageError(f"{where}: copies: found {scenario.processes} of all programs; allowed are {MOST_PROCESSES}")
    return scenario


def _canary(value: object, what: str) -> Canary:
    if isinstance(value, bool):
        return Canary() if value else Canary(0.0, 0.0, False)
    if not isinstance(value, dict):
        raise UsageError(
            f"{what}: found {found(value)}; allowed are true, false or a table with {', '.join(CANARY_KEYS)}"
        )
    _known(value, what, CANARY_KEYS)
    kept: dict[str, Any] = {k: real(value[k], f"{what}.{k}", 0, 3600) for k in ("before_s", "after_s") if k in value}
    if "during" in value:
        kept["during"] = _truth(value["during"], f"{what}.during")
    return Canary(**kept)


def _starts(value: object, what: str, copies: int) -> tuple[float, ...]:
    if isinstance(value, list):
        if len(value) != copies:
            raise UsageError(f"{what}: found {len(value)} numbers; allowed is one, or one for each of {copies} copies")
        return tuple(real(v, what, 0, 1e6) for v in value)
    return (real(value, what, 0, 1e6),) * copies


def _cpu_set(value: object, what: str) -> tuple[int, ...]:
    try:
        cpus = parse_list(value) if isinstance(value, str) and len(value) <= 10_000 else ()
    except MeshmarkError:
        cpus = ()
    if not cpus:
        raise UsageError(f"{what}: found {found(value)}; allowed is a list such as '0-3,8'")
    return cpus


def _cpu_sets(value: object, what: str, copies: int) -> tuple[tuple[int, ...], ...]:
    if isinstance(value, list):
        if len(value) != copies:
            raise UsageError(f"{what}: found {len(value)} lists; allowed is one, or one for each of {copies} copies")
        return tuple(_cpu_set(v, what) for v in value)
    return (_cpu_set(value, what),) * copies


def _environment(value: object, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f"{what}: found {found(value)}; allowed is a table of texts and numbers")
    out: dict[str, str] = {}
    for key, entry in value.items():
        if not _VARIABLE.fullmatch(key):
            raise UsageError(f"{what}: found {found(key)}; a variable's name is letters, digits and _")
        if isinstance(entry, bool) or not isinstance(entry, str | int | float) or "\0" in str(entry):
            raise UsageError(f"{what}.{key}: found {found(entry)}; allowed are text and numbers")
        out[key] = str(entry)
    return out


def _command(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(w, str) and "\0" not in w for w in value):
        raise UsageError(f"{what}: found {found(value)}; allowed is a list of texts, such as ['lmp', '-in', 'melt.in']")
    if not value[0]:
        raise UsageError(f"{what}: found an empty text; allowed is the name of a program")
    return tuple(value)


def _path(value: object, what: str) -> str:
    said = text(value, what, 4000)
    if not said.startswith("/"):
        raise UsageError(f"{what}: found {found(said)}; allowed is a path from /, such as /sys/fs/cgroup/batch")
    return said.rstrip("/")


def _member(raw: Mapping[str, Any], where: str, name: str, metrics: Metrics, folder: Path) -> Member:
    wishes = {*RESERVED, *metrics} - set(PROGRAM_KEYS)
    what = [k for k in ("command", "file") if k in raw]
    prescribed = [k for k in raw if k in wishes]
    if len(what) > 1:
        raise UsageError(f"{where}: command: found with file; allowed is one of them")
    if what and prescribed:
        raise UsageError(
            f"{where}: {prescribed[0]}: found with {what[0]}, which is as it is; allowed is what it runs, or how it is "
            "to behave"
        )
    if what:
        _known(raw, where, PROGRAM_KEYS)
    elif "run_time_s" not in raw:
        for key in raw:
            if key not in PROGRAM_KEYS and key not in wishes:
                raise UsageError(f"{where}: {shown(key)}: unknown key; {_meant(key, (*PROGRAM_KEYS, *sorted(wishes)))}")
        raise UsageError(
            f'{where}: found nothing to run; allowed are command = […], file = "…" or run_time_s and what is prescribed'
        )

    kept: dict[str, Any] = {}
    copies = whole(raw.get("copies", 1), f"{where}: copies", 1, MOST_PROCESSES)
    if "start_s" in raw:
        kept["start_s"] = _starts(raw["start_s"], f"{where}: start_s", copies)
    if "cpus" in raw:
        kept["cpus"] = _cpu_sets(raw["cpus"], f"{where}: cpus", copies)
    if "cgroup" in raw:
        kept["cgroup"] = _path(raw["cgroup"], f"{where}: cgroup")
    if "nice" in raw:
        kept["nice"] = whole(raw["nice"], f"{where}: nice", -20, 19)
    if "priority" in raw:
        kept["priority"] = _one_of(raw["priority"], f"{where}: priority", PRIORITIES)
    if "policy" in raw:
        if "cpus" in raw:
            raise UsageError(f"{where}: policy: found with cpus; allowed is one of them")
        kept["policy"] = _policy(raw["policy"], f"{where}: policy")
    if "threads" in raw:
        kept["threads"] = whole(raw["threads"], f"{where}: threads", 1, 1 << 16)
    if "wait_policy" in raw:
        kept["wait_policy"] = _one_of(raw["wait_policy"], f"{where}: wait_policy", WAIT_POLICIES)
    if "memory" in raw:
        said = raw["memory"]
        policy, _, _ = said.partition("=") if isinstance(said, str) else ("", "", "")
        if policy not in vocabulary().memory or not _NODES.fullmatch(said[len(policy) :]):
            raise UsageError(
                f"{where}: memory: found {found(said)}; allowed are {', '.join(vocabulary().memory)}, "
                "with =NODES where nodes are named"
            )
        kept["memory"] = "" if said == "default" else said
    if "memory_mib" in raw:
        kept["memory_mib"] = real(raw["memory_mib"], f"{where}: memory_mib", 1e-3, 1e9)
    if "env" in raw:
        kept["env"] = _environment(raw["env"], f"{where}: env")
    if "cwd" in raw:
        kept["cwd"] = str(folder / text(raw["cwd"], f"{where}: cwd", 4000))
    if "oversubscribe" in raw:
        kept["oversubscribe"] = _truth(raw["oversubscribe"], f"{where}: oversubscribe")
    if "command" in raw:
        kept["command"] = _command(raw["command"], f"{where}: command")
    elif "file" in raw:
        kept["file"] = folder / text(raw["file"], f"{where}: file", 4000)
    else:
        wish = {"name": name, **{k: v for k, v in raw.items() if k not in PROGRAM_KEYS or k in RESERVED}}
        kept["prescription"] = parse_prescription(wish, where, metrics, PROGRAM_KEYS)
    kept.setdefault("start_s", (0.0,) * copies)
    kept.setdefault("cpus", ((),) * copies)
    return Member(name=name, copies=copies, **kept)


@contextlib.contextmanager
def about_program(name: str) -> Iterator[None]:
    """What is refused meanwhile names the program."""
    try:
        yield
    except UsageError as why:
        raise UsageError(f"program {name}: {why}", why.hint) from why
