"""Parse scenarios: programs that run together, their start times, CPUs, copies and target profiles.

[scenario]
name = "shared bus"           # sample_s, timeout_s, policy, slots, canary are optional

[[program]]
name = "traffic"
copies = 4
start_s = [0, 0, 5, 5]        # one for all copies, or one per copy
cpus = "0-3"                  # for every copy, or a list with one entry per copy
run_time_s = 100.0            # a target profile: see profile.py …
memory_gb_per_s = 2.14

[[program]]
name = "melt"
command = ["lmp", "-in", "melt.in"]    # … or a real command, file = "traffic.json", or application = "melt.toml"
threads = 4
wait_policy = "passive"

[metric.bytes_per_flop]       # a user's metric for target profiles: see metrics.py
formula = "(memory_read_bytes + memory_write_bytes) / flops"
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from meshmark.errors import UsageError, quoted
from meshmark.load.calibration.metrics import RESERVED, Metrics, MetricTables, all_metrics, metrics_of
from meshmark.load.calibration.profile import TargetProfile, Threads, parse_profile
from meshmark.place.candidates import SCHEDULERS, WAITS
from meshmark.place.native import vocabulary
from meshmark.store.files import parse_toml, read_text
from meshmark.values import grammar
from meshmark.values.inputs import LIST, PRINTABLE, Input, Name, OneOf, checked, fields_of, quoted_value, unknown_key

if TYPE_CHECKING:
    from meshmark.load.scenario.application import ScenarioApplication

PRIORITIES: Final = SCHEDULERS
WAIT_POLICIES: Final = WAITS
SLOTS: Final = ("procs", "cores", "threads")
MAX_PROCESSES: Final = 4096
_MAX_BYTES: Final = 1 << 20
_NODES: Final = re.compile(r"(=[0-9,:-]{1,200})?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")

# A policy's name and modifiers; the native program validates them.
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
                f"found {len(value)} entries; allowed: one value, or a list with an entry for each of {copies} copies"
            )
        return value
    return value * copies if isinstance(value, tuple) else (value,) * copies


def _cpus(value: object) -> object:
    try:
        return grammar.cpus("", value) if isinstance(value, str) else value
    except UsageError as error:
        raise ValueError("allowed: a list such as '0-3,8'") from error


def _memory(text: str) -> str:
    policy = text.partition("=")[0]
    if policy not in vocabulary().memory or not _NODES.fullmatch(text[len(policy) :]):
        policies = ", ".join(vocabulary().memory)
        raise ValueError(f"allowed: {policies}, with =NODES if the policy takes nodes")
    return "" if text == "default" else text


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("allowed: the name of a variable: letters, digits and _")
    return name


def _dimension(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,59}", name):
        raise ValueError("allowed: the name of a dimension: letters, digits, _ and -")
    return name


def _value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError("allowed: text and numbers")
    return str(value)


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("allowed: text without NUL")
    return text


def _nonempty(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command[0]:
        raise ValueError("found an empty text; allowed: the name of a program")
    return command


def _file(value: object) -> Path:
    if not isinstance(value, str) or not 0 < len(value) <= 4000 or not value.isprintable():
        raise ValueError("allowed: printable text of 1 to 4000 characters")
    return Path(value)


@dataclass(frozen=True, slots=True)
class Canary(Input):
    """Defines when memory latency is sampled to detect a noisy machine; 0 s and False: never."""

    before_s: Annotated[float, Field(ge=0, le=3600)] = 0.5
    after_s: Annotated[float, Field(ge=0, le=3600)] = 0.5
    during: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTable(Input):
    """A [[program]] without its target profile."""

    name: Annotated[
        Name,
        Field(
            pattern=r"^[\w:+#@-]([\w .:+#@-]*[\w.:+#@-])?$",
            description="a name of letters, digits, spaces and . : + # @ - _",
        ),
    ]
    command: Annotated[
        tuple[Annotated[str, AfterValidator(_argument)], ...],
        LIST,
        Field(min_length=1, description="a list of texts, such as ['lmp', '-in', 'melt.in']"),
        AfterValidator(_nonempty),
    ] = ()
    file: Annotated[Path, BeforeValidator(_file)] | None = None  # file of a synthetic program
    application: _LongText = ""  # a file, or a name that meshmark list applications prints
    dimensions: Mapping[Annotated[str, AfterValidator(_dimension)], Annotated[str, BeforeValidator(_value)]] = field(
        default_factory=dict
    )
    copies: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] = 1
    start_s: Annotated[  # one value per copy
        tuple[Annotated[float, Field(ge=0, le=1e6)], ...],
        LIST,
        BeforeValidator(_each_copy),
        Field(validate_default=True),
    ] = (0.0,)
    cpus: Annotated[  # one list per copy; empty: all CPUs of the scenario
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
    policy: _Policy = ""  # as for meshmark run --bind; "": the policy of the scenario
    threads: Threads = 1
    wait_policy: Annotated[str, OneOf(WAIT_POLICIES)] = ""
    memory: Annotated[str, AfterValidator(_memory)] = ""  # as for meshmark run --memory
    memory_mib: Annotated[float, Field(ge=1e-3, le=1e9)] | None = None  # of one copy, if known
    env: Mapping[Annotated[str, AfterValidator(_variable)], Annotated[str, BeforeValidator(_value)]] = field(
        default_factory=dict
    )
    cwd: _LongText = ""
    oversubscribe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioProgram(ProgramTable):
    """A program of a scenario; it has exactly one of `command`, `file`, `described` and `profile`."""

    profile: TargetProfile | None = None
    described: ScenarioApplication | None = None  # by an application file

    @property
    def synthesised(self) -> bool:
        """Return whether it is a synthetic program, and neither a command nor an application."""
        return not self.command and self.described is None

    def single(self, copy: int = 0) -> ScenarioProgram:
        """Return one copy of the program, which starts at 0 s."""
        return replace(self, copies=1, start_s=(0.0,), cpus=(self.cpus[copy],))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTable(Input):
    """The table [scenario]."""

    name: Name = "scenario"
    sample_s: Annotated[float, Field(ge=0.005, le=60)] = 0.1
    timeout_s: Annotated[float, Field(ge=0.01, le=1e6)] = 0.0  # after the start of the clock; 0: no timeout
    policy: _Policy = ""  # for programs without cpus or policy; "": not bound
    slots: Annotated[str, OneOf(SLOTS)] = "cores"
    canary: Annotated[
        Canary,
        BeforeValidator(_canary),
        Field(description=f"true, false or a table with {', '.join(f.name for f in fields(Canary))}"),
    ] = Canary()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile(Input):
    """The content of a scenario file, before its programs are read."""

    scenario: ScenarioTable = ScenarioTable()
    program: Annotated[
        tuple[dict[str, Any], ...], LIST, Field(min_length=1, description="at least one table [[program]]")
    ]
    metric: MetricTables = field(default_factory=dict)


PROGRAM_KEYS: Final = tuple(f.name for f in fields(ProgramTable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(ScenarioTable):
    """Programs that run together, with the settings of their run."""

    programs: tuple[ScenarioProgram, ...]
    metrics: Metrics = field(default_factory=dict)  # the user's metrics, from the file and from --metrics

    @property
    def processes(self) -> int:
        """Return the number of copies of all programs."""
        return sum(p.copies for p in self.programs)

    def member(self, name: str) -> ScenarioProgram:
        """Return the program with this name.

        Raises:
            UsageError: no program has this name.
        """
        for p in self.programs:
            if p.name == name:
                return p
        raise UsageError(
            f"program: found {quoted_value(name)}; the scenario has {', '.join(p.name for p in self.programs)}"
        )

    def alone(self, name: str, copy: int = 0) -> Scenario:
        """Return a scenario with only one copy of one program, the baseline of a comparison."""
        return replace(self, name=f"{self.name}: {name} alone", programs=(self.member(name).single(copy),))


def read_scenario(path: Path, user_metrics: Metrics | None = None) -> Scenario:
    """Return a scenario from its file; paths in it are relative to its folder.

    Args:
        path: the file.
        user_metrics: The user's metrics for target profiles, beside the built-in metrics and the metrics in the file.

    Raises:
        UsageError: one line that names the file, the key, what was found and what is allowed.
    """
    return parse_scenario(read_text(path, _MAX_BYTES), str(path), user_metrics, path.parent)


def parse_scenario(toml: str, where: str, user_metrics: Metrics | None = None, folder: Path = Path()) -> Scenario:
    """Return a scenario from TOML text.

    Args:
        toml: the text.
        where: the name of the text in error messages.
        user_metrics: The user's metrics for target profiles, beside the built-in metrics and the metrics in the text.
        folder: base of relative paths.

    Raises:
        UsageError: one line that names the key, what was found and what is allowed.
    """
    file = checked(ScenarioFile, parse_toml(toml, where), where)
    scenario_metrics = _own_metrics(file.metric, where, user_metrics or {})
    metrics = all_metrics(scenario_metrics)
    members: list[ScenarioProgram] = []
    for i, table in enumerate(file.program, 1):
        name = f"program{i}" if len(file.program) > 1 else "program"
        members.append(_member({"name": name, **table}, f"{where}: program {i}", metrics, folder))
        name_of_last = members[-1].name
        if namesake := next((m.name for m in members[:-1] if file_stem(m.name) == file_stem(name_of_last)), ""):
            reason = (
                "which another program has"
                if namesake == name_of_last
                else f"whose files would have the same names as the files of {quoted_value(namesake)}"
            )
            raise UsageError(f"{where}: program {i}: name: found {quoted_value(name_of_last)}, {reason}")
    scenario = Scenario(programs=tuple(members), metrics=scenario_metrics, **fields_of(file.scenario))
    if scenario.processes > MAX_PROCESSES:
        raise UsageError(f"{where}: copies: found {scenario.processes} in all programs; allowed: {MAX_PROCESSES}")
    return scenario


def file_stem(program: str) -> str:
    """Return the first part of the names of a program's files."""
    return re.sub(r"[^\w.+@-]", "_", program)


def _own_metrics(tables: Mapping[str, Any], where: str, given: Metrics) -> Metrics:
    """Return the user's metrics, from the text and from --metrics."""
    in_text = metrics_of(tables, where)
    for name in in_text:
        if name in given:
            raise UsageError(f"{where}: metric.{name}: found here and with --metrics; allowed: one of them")
    metrics = {**given, **in_text}
    for name in metrics:
        if name in PROGRAM_KEYS:
            raise UsageError(f"{where}: metric.{name}: the name is a key of [[program]]; choose another")
    return metrics


def _member(raw: Mapping[str, Any], where: str, metrics: Metrics, folder: Path) -> ScenarioProgram:
    if isinstance(raw["name"], str):
        where = f"{where.rpartition(' ')[0]} {quoted(raw['name'], 60)}"
    runnable = [k for k in ("command", "file", "application") if k in raw]
    profile_keys = [k for k in raw if k not in PROGRAM_KEYS and (k in RESERVED or k in metrics)]
    if len(runnable) > 1:
        raise UsageError(f"{where}: {runnable[0]}: found with {runnable[1]}; allowed: one of them")
    if runnable and profile_keys:
        raise UsageError(
            f"{where}: {profile_keys[0]}: found with {runnable[0]}; allowed: a program to run or a target profile, "
            "not both"
        )
    if not runnable and "run_time_s" not in raw:
        if unknown := next((k for k in raw if k not in PROGRAM_KEYS and k not in profile_keys), ""):
            raise UsageError(f"{where}: {unknown_key(unknown, [*PROGRAM_KEYS, *sorted({*RESERVED, *metrics})])}")
        raise UsageError(
            f'{where}: found nothing to run; allowed: command = […], application = "…", file = "…" or a target profile '
            "with run_time_s"
        )
    if "policy" in raw and "cpus" in raw:
        raise UsageError(f"{where}: policy: found with cpus; allowed: one of them")
    program_table = raw if runnable else {k: v for k, v in raw.items() if k in PROGRAM_KEYS}
    member_fields = fields_of(checked(ProgramTable, program_table, where))
    if member_fields["cwd"]:
        member_fields["cwd"] = str(folder / member_fields["cwd"])
    if member_fields["file"]:
        member_fields["file"] = folder / member_fields["file"]
    if member_fields["application"]:
        from meshmark.load.scenario.application import DimensionTerms, described

        if member_fields["cwd"]:
            raise UsageError(f"{where}: cwd: found with application; its file decides where it runs")
        threads = member_fields["threads"] if "threads" in raw else None  # threads of a rank
        terms = DimensionTerms(f"{where}: application", f"{where}: dimensions", "dimensions = {{ {name} = {value} }}")
        application = described(member_fields["application"], member_fields["dimensions"], threads, folder, terms)
        member_fields |= {"described": application, "threads": application.cpus}
    elif member_fields["dimensions"]:
        raise UsageError(f"{where}: dimensions: found without application")
    if not runnable:
        profile = {k: v for k, v in raw.items() if k not in PROGRAM_KEYS or k in RESERVED}
        member_fields["profile"] = parse_profile(profile, where, metrics, PROGRAM_KEYS)
    return ScenarioProgram(**member_fields)


@contextlib.contextmanager
def about_program(name: str) -> Iterator[None]:
    """Add the name of the program to every UsageError."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"program {name}: {error}", error.hint) from error
