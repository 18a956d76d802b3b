"""Reads the descriptions of the instruments: options, metrics and kernels, as the native programs publish them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError, near_option, quoted
from meshmark.native import find_native
from meshmark.store.record import Metric

KINDS: Final = ("openmpi", "mpich", "mpi")


def find_probe() -> Path:
    """Path of `meshmark-probe`: from `MESHMARK_PROBE`, the installed package or the checkout's build folder.

    Raises:
        MeshmarkError: The program does not exist or is not executable.
    """
    return find_native("meshmark-probe", "MESHMARK_PROBE")


def find_comm(kind: str = "") -> Path:
    """Path of `meshmark-comm`, the program of the MPI ranks.

    Args:
        kind: One of `KINDS`, for one MPI library; "" for the wrapper that detects the library.

    Raises:
        MeshmarkError: The program was not built.
    """
    name = f"meshmark-comm-{kind}" if kind else "meshmark-comm"
    folder = os.environ.get("MESHMARK_COMM")
    if folder:
        place = Path(folder) / name
        if place.is_file():
            return place
        raise MeshmarkError(f"MESHMARK_COMM: found no {name} in {folder}")
    return find_native(name)


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    option: str
    help: str
    unit: str
    kind: str
    default: str
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    per_process: bool = False  # a list, of which a process measures one value

    @property
    def word(self) -> str:
        """The name used in specs: the option without leading dashes, with underscores."""
        return self.option.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Description:
    """Description of one instrument (docs/reference/protocol.md); `raw` is the JSON object it was parsed from."""

    name: str
    summary: str
    detail: str
    source: str
    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]
    identity: tuple[str, ...]
    raw: Mapping[str, Any]

    @property
    def ranks(self) -> bool:
        """Whether this is an MPI instrument, whose processes a launcher starts."""
        return bool(self.raw.get("ranks"))

    def metric(self, name: str) -> Metric:
        """The metric `name`, which must exist."""
        return next(m for m in self.metrics if m.name == name)

    def parameter(self, word: str) -> Parameter:
        """The parameter with this option, spec key or name.

        Raises:
            UsageError: The instrument has no such parameter.
        """
        key = word.removeprefix("--").replace("-", "_")
        for p in self.parameters:
            if key in (p.word, p.name):
                return p
        known = ", ".join(p.option if word.startswith("--") else p.word for p in self.parameters)
        options = [p.option for p in self.parameters]
        hint = near_option(word, options) or f"meshmark measure {self.name} --help" if word.startswith("--") else ""
        raise UsageError(f"{self.name}: found '{quoted(word)}'; allowed: {known}", hint)


def descriptions() -> Mapping[str, Description]:
    """Descriptions of all instruments by name; MPI instruments only if a program for an MPI library was built.

    Raises:
        MeshmarkError: The probe does not print a valid description.
    """
    return _descriptions(*map(os.environ.get, ("MESHMARK_PROBE", "MESHMARK_COMM")))


@cache
def _descriptions(*_: str | None) -> Mapping[str, Description]:
    """The descriptions with these values of the environment. Joins ask for them once a record."""
    known = _described(find_probe())
    for kind in KINDS:
        try:
            return {**known, **_described(find_comm(kind))}
        except MeshmarkError:  # also a program whose MPI library has been removed: it does not start
            continue
    return known


@cache
def _described(probe: Path) -> dict[str, Description]:
    try:
        completed = subprocess.run([str(probe), "--describe"], capture_output=True, timeout=30, check=True)
        parsed = json.loads(completed.stdout)
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
                tuple(d["identity"]),
                d,
            )
            for d in parsed
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as why:
        raise MeshmarkError(f"{probe.name} --describe failed: {why}", hint="make setup") from why


def description(instrument: str) -> Description:
    """The description of one instrument.

    Raises:
        UsageError: The instrument is unknown; the message lists the known ones.
    """
    known: Mapping[str, Description] = _described(find_probe())
    if instrument not in known:
        known = descriptions()
    if instrument not in known:
        hint = (
            ""
            if any(d.ranks for d in known.values())
            else (
                "MPI instruments need an MPI library: install its development package, then run make setup or rebuild "
                "the wheel"
            )
        )
        raise UsageError(f"instrument: found '{quoted(instrument)}'; allowed: {', '.join(known)}", hint)
    return known[instrument]


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """Operands per element of a STREAM kernel, as the description of `bandwidth` counts them."""

    reads: int
    writes: int
    allocates: int  # operands that ordinary stores read before they overwrite them (write-allocate)

    @property
    def net(self) -> int:
        """Operands that the kernel names, as STREAM counts them."""
        return self.reads + self.writes

    @property
    def arrays(self) -> int:
        """Arrays of the kernel; one that is written in place counts once."""
        return self.reads + self.allocates

    @property
    def only_read(self) -> int:
        """Arrays that are read and not written."""
        return self.reads - (self.writes - self.allocates)

    def gross(self, store: str) -> int:
        """Operands transferred with `ordinary` or `streaming` stores."""
        return self.net + (self.allocates if store == "ordinary" else 0)

    def read_share(self, store: str) -> float:
        """Share of reads in the transferred operands, 0 to 1."""
        return (self.gross(store) - self.writes) / self.gross(store)


def stream_kernels() -> dict[str, StreamKernel]:
    """STREAM kernels by name, in the order of the description."""
    kernels: Mapping[str, Mapping[str, int]] = description("bandwidth").raw["work"]["kernels"]
    return {name: StreamKernel(k["reads"], k["writes"], k["allocates"]) for name, k in kernels.items()}
