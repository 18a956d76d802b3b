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
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from meshmark.errors import UsageError, quoted
from meshmark.load.metrics import RESERVED, Metrics, MetricTables, all_metrics, metrics_of
from meshmark.load.prescription import Prescription, Threads, parse_prescription
from meshmark.place.native import vocabulary
from meshmark.store.files import parse_toml, read_text
from meshmark.values import grammar
from meshmark.values.inputs import LIST, PRINTABLE, Input, Name, OneOf, checked, fields_of, found, unknown_key

PRIORITIES: Final = ("other", "batch", "idle", "fifo")
WAIT_POLICIES: Final = ("active", "passive")
SLOTS: Final = ("procs", "cores", "threads")
MOST_PROCESSES: Final = 4096
_MAX_BYTES: Final = 1 << 20  # of a scenario's file
_NODES: Final = re.compile(r"(=[0-9,:-]{1,200})?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")

# A policy's name and modifiers; whether they can be had is the native program's to say.
_Policy = Annotated[str, Field(min_length=1, max_length=200), PRINTABLE]
_LongText = Annotated[str, Field(min_length=1, max_length=4000), PRINTABLE]


def _canary(value: object) -> object:
    if isinstance(value, bool):
        return {} if value else {"before_s": 0, "after_s": 0, "during": False}
    return value


def _each_copy(value: object, info: ValidationInfo) -> object:
    copies = info.data.get("copies", 1)
    if isinstance(value, list):
        if len(value) != copies:
            raise ValueError(
                f"found {len(value)} entries; allowed is one value, or a list with an entry for each of {copies} copies"
            )
        return value
    return value * copies if isinstance(value, tuple) else (value,) * copies


def _cpus(value: object) -> object:
    try:
        return grammar.cpus("", value) if isinstance(value, str) else value
    except UsageError as why:
        raise ValueError("allowed is a list such as '0-3,8'") from why


def _memory(text: str) -> str:
    policy = text.partition("=")[0]
    if policy not in vocabulary().memory or not _NODES.fullmatch(text[len(policy) :]):
        known = ", ".join(vocabulary().memory)
        raise ValueError(f"allowed are {known}, with =NODES where nodes are named")
    return "" if text == "default" else text


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("allowed is a variable's name: letters, digits and _")
    return name


def _value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError("allowed are text and numbers")
    return str(value)


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("allowed is text without NUL")
    return text


def _named(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command[0]:
        raise ValueError("found an empty text; allowed is the name of a program")
    return command


def _file(value: object) -> Path:
    if not isinstance(value, str) or not 0 < len(value) <= 4000 or not value.isprintable():
        raise ValueError("allowed is printable text of 1 to 4000 characters")
    return Path(value)


@dataclass(frozen=True, slots=True)
class Canary(Input):
    """When a fixed piece of work is timed, to tell whether the machine was quiet. 0 s and False: not."""

    before_s: Annotated[float, Field(ge=0, le=3600)] = 0.5
    after_s: Annotated[float, Field(ge=0, le=3600)] = 0.5
    during: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTable(Input):
    """A [[program]], whatever it runs, without what it prescribes."""

    name: Annotated[
        Name,
        Field(
            pattern=r"^[\w:+#@-]([\w .:+#@-]*[\w.:+#@-])?$",
            description="a name of letters, digits, spaces and . : + # @ - _",
        ),
    ]
    command: Annotated[
        tuple[Annotated[str, AfterValidator(_word)], ...],
        LIST,
        Field(min_length=1, description="a list of texts, such as ['lmp', '-in', 'melt.in']"),
        AfterValidator(_named),
    ] = ()
    file: Annotated[Path, BeforeValidator(_file)] | None = None  # of a program that was synthesised before
    copies: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] = 1
    start_s: Annotated[  # one a copy
        tuple[Annotated[float, Field(ge=0, le=1e6)], ...],
        LIST,
        BeforeValidator(_each_copy),
        Field(validate_default=True),
    ] = (0.0,)
    cpus: Annotated[  # one a copy; empty: wherever the scenario may run
        tuple[Annotated[tuple[int, ...], BeforeValidator(_cpus), Field(description="a list such as '0-3,8'")], ...],
        LIST,
        BeforeValidator(_each_copy),
        Field(validate_default=True),
    ] = ((),)
    cgroup: Annotated[
        _LongText,
        Field(pattern="^/", description="a path from /, such as /sys/fs/cgroup/batch"),
        AfterValidator(lambda path: path.rstrip("/")),
    ] = ""
    nice: Annotated[int, Field(ge=-20, le=19)] = 0
    priority: Annotated[str, OneOf(PRIORITIES)] = "other"
    policy: _Policy = ""  # of meshmark run --bind; "": the scenario's
    threads: Threads = 1
    wait_policy: Annotated[str, OneOf(WAIT_POLICIES)] = ""
    memory: Annotated[str, AfterValidator(_memory)] = ""  # of meshmark run --memory
    memory_mib: Annotated[float, Field(ge=1e-3, le=1e9)] | None = None  # of one copy, where that was said
    env: Mapping[Annotated[str, AfterValidator(_variable)], Annotated[str, BeforeValidator(_value)]] = field(
        default_factory=dict
    )
    cwd: _LongText = ""
    oversubscribe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(ProgramTable):
    """A program of a scenario; exactly one of `command`, `file` and `prescription` is there."""

    prescription: Prescription | None = None

    @property
    def synthesised(self) -> bool:
        return not self.command

    def one(self, copy: int = 0) -> Member:
        """One copy of it by itself, from the beginning."""
        return replace(self, copies=1, start_s=(0.0,), cpus=(self.cpus[copy],))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTable(Input):
    """[scenario]."""

    name: Name = "scenario"
    sample_s: Annotated[float, Field(ge=0.005, le=60)] = 0.1
    timeout_s: Annotated[float, Field(ge=0.01, le=1e6)] = 0.0  # after the clock started; 0: none
    policy: _Policy = ""  # for programs without cpus and policy of their own; "": not bound
    slots: Annotated[str, OneOf(SLOTS)] = "cores"
    canary: Annotated[
        Canary,
        BeforeValidator(_canary),
        Field(description=f"true, false or a table with {', '.join(f.name for f in fields(Canary))}"),
    ] = Canary()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile(Input):
    scenario: ScenarioTable = ScenarioTable()
    program: Annotated[
        tuple[dict[str, Any], ...], LIST, Field(min_length=1, description="at least one table [[program]]")
    ]
    metric: MetricTables = field(default_factory=dict)


PROGRAM_KEYS: Final = tuple(f.name for f in fields(ProgramTable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(ScenarioTable):
    programs: tuple[Member, ...]
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
    file = checked(ScenarioFile, parse_toml(said, where), where)
    own = _own_metrics(file.metric, where, own or {})
    metrics = all_metrics(own)
    members: list[Member] = []
    for i, table in enumerate(file.program, 1):
        name = f"program{i}" if len(file.program) > 1 else "program"
        members.append(_member({"name": name, **table}, f"{where}: program {i}", metrics, folder))
        if any(m.name == members[-1].name for m in members[:-1]):
            raise UsageError(f"{where}: program {i}: name: found {found(members[-1].name)}, which another program has")
    scenario = Scenario(programs=tuple(members), metrics=own, **fields_of(file.scenario))
    if scenario.processes > MOST_PROCESSES:
        raise UsageError(f"{where}: copies: found {scenario.processes} of all programs; allowed are {MOST_PROCESSES}")
    return scenario


def _own_metrics(tables: Mapping[str, Any], where: str, given: Metrics) -> Metrics:
    """Of the text and those given beside it."""
    written = metrics_of(tables, where)
    for name in written:
        if name in given:
            raise UsageError(f"{where}: metric.{name}: found here and with --metrics; allowed is one of them")
    own = {**given, **written}
    for name in own:
        if name in PROGRAM_KEYS:
            raise UsageError(f"{where}: metric.{name}: found a name that is a key of [[program]]; allowed is another")
    return own


def _member(raw: Mapping[str, Any], where: str, metrics: Metrics, folder: Path) -> Member:
    if isinstance(raw["name"], str):
        where = f"{where.rpartition(' ')[0]} {quoted(raw['name'], 60)}"
    runs = [k for k in ("command", "file") if k in raw]
    wishes = [k for k in raw if k not in PROGRAM_KEYS and (k in RESERVED or k in metrics)]
    if len(runs) > 1:
        raise UsageError(f"{where}: command: found with file; allowed is one of them")
    if runs and wishes:
        raise UsageError(
            f"{where}: {wishes[0]}: found with {runs[0]}, which is as it is; allowed is what it runs, or how it is "
            "to behave"
        )
    if not runs and "run_time_s" not in raw:
        if unknown := next((k for k in raw if k not in PROGRAM_KEYS and k not in wishes), ""):
            raise UsageError(f"{where}: {unknown_key(unknown, [*PROGRAM_KEYS, *sorted({*RESERVED, *metrics})])}")
        raise UsageError(
            f'{where}: found nothing to run; allowed are command = […], file = "…" or run_time_s and what is prescribed'
        )
    if "policy" in raw and "cpus" in raw:
        raise UsageError(f"{where}: policy: found with cpus; allowed is one of them")
    own = raw if runs else {k: v for k, v in raw.items() if k in PROGRAM_KEYS}
    kept = fields_of(checked(ProgramTable, own, where))
    if kept["cwd"]:
        kept["cwd"] = str(folder / kept["cwd"])
    if kept["file"]:
        kept["file"] = folder / kept["file"]
    if not runs:
        wish = {k: v for k, v in raw.items() if k not in PROGRAM_KEYS or k in RESERVED}
        kept["prescription"] = parse_prescription(wish, where, metrics, PROGRAM_KEYS)
    return Member(**kept)


@contextlib.contextmanager
def about_program(name: str) -> Iterator[None]:
    """What is refused meanwhile names the program."""
    try:
        yield
    except UsageError as why:
        raise UsageError(f"program {name}: {why}", why.hint) from why
