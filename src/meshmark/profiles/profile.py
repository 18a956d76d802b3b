"""The profile of a program: what pressures do to it, what it does to neighbours, and the file that holds both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from meshmark.errors import UsageError
from meshmark.profiles.pressure import MEMORY, Kind
from meshmark.statistics.geometric import MIN_RUNS, mean_of
from meshmark.statistics.verdicts import Interval
from meshmark.store.files import read_text
from meshmark.values.inputs import LIST, Excerpt, Label, checked, quoted_value

VERSION: Final = 1
_MOST_BYTES: Final = 16 << 20
Positive = Annotated[float, Field(gt=0, le=1e18)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Cpu = Annotated[int, Field(ge=0, lt=1 << 20)]
Factors = Annotated[tuple[Factor, ...], LIST]


def interval_of(factors: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the median of factors; None with fewer than three."""
    return mean_of({"": factors}).interval if len(factors) >= MIN_RUNS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureEffect(Excerpt):
    """What a pressure and the program do to each other.

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
        responses: Speed of neighbours beside each pressure on the program's CPUs, relative to their speed alone; by the
            name of their pressure, then by the name of the other.
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
    responses: Mapping[Label, Mapping[Label, Factor]]
    flags: Annotated[tuple[str, ...], LIST] = ()
    run: str = ""
    started: str = ""
    build: str = ""

    def effect(self, name: str) -> PressureEffect | None:
        """Return the effect of a pressure; None if it was not measured."""
        return next((effect for effect in self.effects if effect.name == name), None)

    @property
    def speeds(self) -> dict[str, float]:
        """Return the speed of the program beside each pressure, relative to its speed alone."""
        return {effect.name: 1 / effect.slowdown for effect in self.effects}

    @property
    def probes(self) -> dict[str, float]:
        """Return the speed of each probe beside the program, relative to its speed alone."""
        return {e.name: 1 / median(e.caused) for e in self.effects if e.caused and e.name in self.responses}

    @property
    def strongest(self) -> PressureEffect | None:
        """Return the effect of the strongest pressure on memory; None if it was not measured."""
        return self.effect(MEMORY)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and a file contains."""
        return asdict(self)


def check(profile: ProgramProfile, where: str) -> ProgramProfile:
    """Check that a profile is consistent.

    Raises:
        UsageError: A response names a pressure that has no effect, or lacks one.
    """
    names = {effect.name for effect in profile.effects}
    for probe, speeds in profile.responses.items():
        if probe not in names or not names <= speeds.keys():
            name = quoted_value(probe)
            raise UsageError(
                f"{where}: responses: found {name}; allowed: a pressure, with a speed beside every pressure"
            )
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
    text = read_text(path, _MOST_BYTES)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path.name}: found no JSON: {error}", "meshmark profile --json > FILE writes a profile"
        ) from None
    if not isinstance(content, dict) or content.get("type") != "profile":
        raise UsageError(f"{path.name}: type: found no profile; meshmark profile writes one")
    if content.get("schema") != VERSION:
        version = quoted_value(content.get("schema"))
        raise UsageError(f"{path.name}: schema: found {version}; allowed: {VERSION}", "make the profile again")
    return check(checked(ProgramProfile, content, path.name), path.name)


def names_of(profiles: Sequence[ProgramProfile]) -> list[str]:
    """Return the names of profiles, each with a number if it occurred before."""
    from meshmark.experiments.rating_session import unique

    return unique([profile.name for profile in profiles])
