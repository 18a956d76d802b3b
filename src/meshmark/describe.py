"""Reads the descriptions of the instruments (options, metrics and kernels) that the native programs print."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.errors import AbsentError, MeshmarkError, UsageError, near_option, quoted
from meshmark.mpi_programs import built_program, other_version, program_name
from meshmark.native import VERSION, find_native, misfit_remedy, mpi_remedy, remedy, start_error
from meshmark.store.record import OBSERVED, Metric, Record

KINDS: Final = ("openmpi", "mpich", "mpi")
APPLICATIONS: Final = Path(__file__).with_name("described_applications.json")  # by tools/describe_applications.py
_VARIABLES: Final = ("MESHMARK_PROBE", "MESHMARK_COMM")  # of the environment, which name the programs


def find_probe() -> Path:
    """Return the path of `meshmark-probe`: from `MESHMARK_PROBE`, the installed package or the build folder.

    Raises:
        MeshmarkError: The program does not exist or is not executable.
    """
    return find_native("meshmark-probe", "MESHMARK_PROBE")


def find_comm(kind: str = "") -> Path:
    """Return the path of `meshmark-comm`, the program of the MPI ranks.

    A program that `meshmark mpi build` compiled is preferred.

    Args:
        kind: One of `KINDS`, for one MPI library; "" for the wrapper that detects the library.

    Raises:
        MeshmarkError: The program was not built, or by another version of Meshmark.
    """
    name = program_name(kind) if kind else "meshmark-comm"
    folder = os.environ.get("MESHMARK_COMM")
    if folder:
        place = Path(folder) / name
        if place.is_file():
            return place
        raise MeshmarkError(f"MESHMARK_COMM: found no {name} in {folder}")
    if built := built_program(kind):
        return built.program
    try:
        return find_native(name)
    except MeshmarkError:
        if version := other_version(kind):
            message = f"{name} belongs to Meshmark {version}, the Python package is {VERSION}"
            raise MeshmarkError(message, "meshmark mpi build") from None
        raise


def starts(program: Path) -> bool:
    """Return whether a program prints its descriptions. It does not start if its MPI library is missing."""
    try:
        _described(program)
    except MeshmarkError:
        return False
    return True


def find_working_comm() -> Path:
    """Return the path of the first program of MPI ranks that starts, because its MPI library is installed.

    Raises:
        MeshmarkError: There is no such program.
    """
    for kind in KINDS:
        try:
            program = find_comm(kind)
        except MeshmarkError:
            continue
        if starts(program):
            return program
    raise MeshmarkError("found no program for an MPI library that is installed", mpi_remedy())


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an instrument, from which its command-line option, help and stored condition derive."""

    name: str
    option: str
    help: str
    unit: str
    kind: str
    default: str
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    per_process: bool = False  # the option is a list, and each process measures one of its values

    @property
    def word(self) -> str:
        """Return the name in specifications: the option without leading dashes, with underscores."""
        return self.option.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Description:
    """Description of one instrument (docs/reference/protocol.md).

    Attributes:
        identity: The conditions that distinguish points, in alphabetical order.
        raw: The JSON object from which the description was parsed.
        observed: Conditions that the instrument observes, besides `store.record.OBSERVED`.
    """

    name: str
    summary: str
    detail: str
    source: str
    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]
    identity: tuple[str, ...]
    raw: Mapping[str, Any]
    observed: tuple[str, ...] = ()

    @property
    def ranks(self) -> bool:
        """Return True for an MPI instrument, whose processes a launcher starts."""
        return bool(self.raw.get("ranks"))

    def metric(self, name: str) -> Metric:
        """Return the metric `name`, which must exist."""
        return next(m for m in self.metrics if m.name == name)

    def parameter(self, word: str) -> Parameter:
        """Return the parameter with this option, specification key or name.

        Raises:
            UsageError: The instrument has no such parameter.
        """
        key = word.removeprefix("--").replace("-", "_")
        for p in self.parameters:
            if key in (p.word, p.name):
                return p
        allowed = ", ".join(p.option if word.startswith("--") else p.word for p in self.parameters)
        options = [p.option for p in self.parameters]
        hint = near_option(word, options) or f"meshmark measure {self.name} --help" if word.startswith("--") else ""
        raise UsageError(f"{self.name}: found '{quoted(word)}'; allowed: {allowed}", hint)


def descriptions() -> Mapping[str, Description]:
    """Return the descriptions of all instruments by name.

    MPI instruments are included if a program for an MPI library was built.

    Raises:
        MeshmarkError: The probe does not print a valid description.
    """
    return _descriptions(*map(os.environ.get, _VARIABLES))


@cache
def _descriptions(*_: str | None) -> Mapping[str, Description]:
    """Return the descriptions for these values of the environment, cached because joins use them for every record."""
    return {**_described(find_probe()), **_described_mpi(), **_applications()}


def observed_conditions(instruments: Iterable[str] | None = None) -> frozenset[str]:
    """Return the names of the conditions that are observed rather than set; without a probe, those that are known.

    Args:
        instruments: Names of the instruments that matter; None: all. The description of the probe suffices for most, so
            that no MPI library needs to start.
    """
    try:
        known = descriptions() if instruments is None else _described_for(instruments)
    except MeshmarkError:
        known = _applications()
    return OBSERVED.union(*(d.observed for d in known.values()))


def find_description(instrument: str) -> Description | None:
    """Return the description of an instrument, or None if it is unknown here.

    Raises:
        MeshmarkError: The probe does not print a valid description.
    """
    return _found_description(instrument, *map(os.environ.get, _VARIABLES))


@cache
def _found_description(instrument: str, *_: str | None) -> Description | None:
    """Return a description for these values of the environment, cached because joins look one up for every record."""
    return _described_for([instrument]).get(instrument)


def _described_for(instruments: Iterable[str]) -> Mapping[str, Description]:
    """Return the descriptions of the probe if it has all these instruments; otherwise all descriptions."""
    by_name = _described(find_probe())
    return by_name if all(name in by_name for name in instruments) else descriptions()


def chosen_conditions(records: Sequence[Record]) -> list[str]:
    """Return the conditions of these records that were set rather than observed, in order of appearance."""
    observed = observed_conditions({r.instrument for r in records})
    return [k for k in dict.fromkeys(k for r in records for k in r.conditions) if k not in observed]


def _described_mpi() -> Mapping[str, Description]:
    try:
        return _described(find_working_comm())
    except MeshmarkError:
        return {}


@cache
def _described(probe: Path) -> dict[str, Description]:
    try:
        completed = process.run([probe, "--describe"], timeout_s=30)
        if completed.returncode != 0:
            # For example, the message of the loader that the C library is too old.
            reason = quoted(completed.stderr.decode(errors="replace").partition("\n")[0])
            text = reason or f"it ended with status {completed.returncode}"
            raise MeshmarkError(f"{probe.name} --describe failed: {text}", misfit_remedy(text))
        return _parsed(completed.stdout)
    except OSError as error:
        raise start_error(probe, error) from error
    except (subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise MeshmarkError(f"{probe.name} --describe failed: {error}", remedy()) from error


def _parsed(text: str | bytes) -> dict[str, Description]:
    """Return the descriptions in the output of a program."""
    return {
        d["name"]: Description(
            d["name"],
            d["summary"],
            d["detail"],
            d["source"],
            tuple(
                Parameter(
                    p["name"],
                    p["option"],
                    p["help"],
                    p["unit"],
                    p["kind"],
                    p["default"],
                    tuple(p["choices"]),
                    p["minimum"],
                    p["maximum"],
                    bool(p.get("per_process")),
                )
                for p in d["parameters"]
            ),
            tuple(map(Metric.from_json, d["metrics"])),
            tuple(sorted(d["identity"])),
            d,
            tuple(d.get("observed", ())),
        )
        for d in json.loads(text)
    }


@cache
def _applications() -> dict[str, Description]:
    """Return the descriptions of native/apps, which come with the package, so that results can be read anywhere."""
    return _parsed(APPLICATIONS.read_bytes())


def is_built(instrument: str) -> bool:
    """Return False for an application that was not built, True for any other name."""
    probe = find_probe()
    if instrument in _described(probe) or instrument not in _applications():
        return True
    return probe.with_name(f"{probe.name}-apps").is_file()


def require_built(instrument: str) -> None:
    """Check that an instrument can run here.

    Raises:
        AbsentError: The instrument is an application, and the applications were not built.
    """
    if not is_built(instrument):
        raise AbsentError(
            f"{instrument} is an application, which this installation does not include",
            remedy("setup APPS=yes", in_wheel=False),
        )


def description(instrument: str) -> Description:
    """Return the description of one instrument.

    Args:
        instrument: Name of the instrument.

    Raises:
        UsageError: The instrument is unknown; the message lists the known ones.
    """
    by_name = _described_for([instrument])
    if instrument not in by_name:
        hint = "" if _described_mpi() else f"MPI instruments need an MPI library: {mpi_remedy()}"
        raise UsageError(f"instrument: found '{quoted(instrument)}'; allowed: {', '.join(by_name)}", hint)
    return by_name[instrument]


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """Operands per element of a STREAM kernel, as the description of `bandwidth` counts them."""

    reads: int
    writes: int
    allocates: int  # operands that ordinary (write-allocate) stores read before overwriting them

    @property
    def net(self) -> int:
        """Return the number of operands that the kernel names, as STREAM counts them."""
        return self.reads + self.writes

    @property
    def arrays(self) -> int:
        """Return the number of arrays of the kernel; an array that is written in place counts once."""
        return self.reads + self.allocates

    @property
    def only_read(self) -> int:
        """Return the number of arrays that are read and not written."""
        return self.reads - (self.writes - self.allocates)

    def gross(self, store: str) -> int:
        """Return the number of operands that are transferred with `ordinary` or `streaming` stores."""
        return self.net + (self.allocates if store == "ordinary" else 0)

    def read_share(self, store: str) -> float:
        """Return the share of reads in the transferred operands, 0 to 1."""
        return (self.gross(store) - self.writes) / self.gross(store)


def stream_kernels() -> dict[str, StreamKernel]:
    """Return the STREAM kernels by name, in the order of the description."""
    kernels: Mapping[str, Mapping[str, int]] = description("bandwidth").raw["work"]["kernels"]
    return {name: StreamKernel(k["reads"], k["writes"], k["allocates"]) for name, k in kernels.items()}
