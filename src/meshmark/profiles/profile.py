"""The profile of a program: what pressures do to it, what it does to neighbours, and the file that holds both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from meshmark.errors import UsageError
from meshmark.experiments.rating_session import unique
from meshmark.profiles.files import read_object
from meshmark.profiles.pressure import Kind
from meshmark.statistics.geometric import MIN_RUNS, mean_of
from meshmark.statistics.verdicts import Interval
from meshmark.values.inputs import LIST, Excerpt, Label, checked, quoted_value

VERSION: Final = 1
Positive = Annotated[float, Field(gt=0, le=1e18)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Cpu = Annotated[int, Field(ge=0, lt=1 << 20)]
Factors = Annotated[tuple[Factor, ...], LIST]


def interval_of(factors: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the median of factors; None with fewer than three."""
    return mean_of({"": factors}).interval if len(factors) >= MIN_RUNS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureEffect(Excerpt):
    """The slowdowns that a pressure and the program cause to each other.

    Attributes:
        name, kind, footprint_bytes: See `pressure.NeighbourPressure`.
        bytes_per_s: Bytes that all neighbours transfer per s if they are alone; 0 if they access no memory.
        slowdowns: By round, the time of the program beside it divided by its time alone.
        caused: By round, how much slower the neighbours are beside the program than alone; empty for neighbours with a
            fixed rate.
    """

    name: Label
    kind: Kind
    footprint_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    bytes_per_s: Annotated[float, Field(ge=0, le=1e15)]
    slowdowns: Factors
    caused: Factors = ()

    @property
    def slowdown(self) -> float:
        """Return the median of the slowdowns of the program."""
        return median(self.slowdowns)

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the slowdown of the program; None with fewer than three rounds."""
        return interval_of(self.slowdowns)

    @property
    def caused_slowdown(self) -> float | None:
        """Return the median of the slowdowns of the neighbours; None if they show none."""
        return median(self.caused) if self.caused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRate(Excerpt):
    """How fast a load kernel is on the CPUs of the neighbours.

    Attributes:
        name, kind: See `pressure.NeighbourPressure`.
        footprint_bytes: Memory of each of its processes; 0 if it uses none beyond the first-level cache.
        units_per_s: Units of the kernel per s of each process.
    """

    name: Label
    kind: Kind
    footprint_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    units_per_s: Annotated[float, Field(gt=0, le=1e15)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProfile(Excerpt):
    """A profile of a program on one machine with one division of its CPUs.

    Attributes:
        name: Short name of the program.
        command: Its command line.
        machine: Name of the machine.
        processor: Model of its processor; "" if unknown.
        program_cpus, neighbour_cpus: See `division.CpuDivision`.
        shared_bytes: Size of the cache that both share; 0 if they share no cache.
        metric, unit, better: What `alone` contains.
        alone: By round, the value of the program alone.
        effects: One for each pressure, in ascending order of their expected effect.
        kernels: Rates of all probes alone.
        responses: Speed of each probe beside each pressure on the program's CPUs, relative to its speed alone; by the
            name of the probe, then by the name of the pressure.
        flags: Flags of the runs.
        run: Name of the run in the store.
        started: Time of the start, ISO 8601, UTC.
        build: Version of Meshmark.
    """

    type: Literal["profile"] = "profile"
    schema: Literal[1] = VERSION
    name: Label
    command: str
    machine: str
    processor: str = ""
    program_cpus: Annotated[tuple[Cpu, ...], LIST, Field(min_length=1)]
    neighbour_cpus: Annotated[tuple[Cpu, ...], LIST, Field(min_length=1)]
    shared_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    metric: str
    unit: str
    better: Literal["lower", "higher"]
    alone: Annotated[tuple[Positive, ...], LIST, Field(min_length=1)]
    effects: Annotated[tuple[PressureEffect, ...], LIST, Field(min_length=1)]
    kernels: Annotated[tuple[KernelRate, ...], LIST]
    responses: Mapping[Label, Mapping[Label, Factor]]
    flags: Annotated[tuple[str, ...], LIST] = ()
    run: str = ""
    started: str = ""
    build: str = ""

    @property
    def speeds(self) -> dict[str, float]:
        """Return the speed of the program beside each pressure, relative to its speed alone."""
        return {effect.name: 1 / effect.slowdown for effect in self.effects}

    @property
    def probes(self) -> dict[str, float]:
        """Return the speed of each probe beside the program, relative to its speed alone."""
        return {e.name: 1 / median(e.caused) for e in self.effects if e.caused and e.name in self.responses}

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and a file contains."""
        return asdict(self)


def check(profile: ProgramProfile, where: str) -> ProgramProfile:
    """Check that a profile is consistent.

    Raises:
        UsageError: A response names an unknown kernel, or lacks a pressure.
    """
    names, kernels = {effect.name for effect in profile.effects}, {kernel.name for kernel in profile.kernels}
    for probe, speeds in profile.responses.items():
        if probe not in kernels or not names <= speeds.keys():
            name = quoted_value(probe)
            raise UsageError(f"{where}: responses: found {name}; allowed: a kernel, with a speed beside every pressure")
    empty = next((effect.name for effect in profile.effects if not effect.slowdowns), None)
    if empty is not None:
        raise UsageError(f"{where}: effects: {empty}: slowdowns: found none; at least one is required")
    return profile


def read_profile(path: Path) -> ProgramProfile:
    """Read the file of a profile.

    Raises:
        UsageError: The file is no profile, or of another version; the error names the field, what was found and what is
            allowed.
        MeshmarkError: The file cannot be read.
    """
    content = read_object(path, "profile", VERSION, "meshmark profile --out FILE -- COMMAND")
    return check(checked(ProgramProfile, content, path.name), path.name)


def names_of(profiles: Sequence[ProgramProfile]) -> list[str]:
    """Return the names of profiles, each with a number if it occurred before."""
    return unique([profile.name for profile in profiles])
