"""What instruments say of themselves: their options, metrics and kernels, by the native programs that have them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.native import find_native
from meshmark.store.record import Metric

KINDS: Final = ("openmpi", "mpich", "mpi")


def find_probe() -> Path:
    """The probe of `MESHMARK_PROBE`, of the installed package, or of the build folder of this checkout.

    Raises:
        MeshmarkError: none is there, or it cannot be executed.
    """
    return find_native("meshmark-probe", "MESHMARK_PROBE")


def find_comm(kind: str = "") -> Path:
    """The program of the ranks, for one MPI library or whichever started it.

    Raises:
        MeshmarkError: it was not built.
    """
    name = f"meshmark-comm-{kind}" if kind else "meshmark-comm"
    folder = os.environ.get("MESHMARK_COMM")
    if folder:
        place = Path(folder) / name
        if place.is_file():
            return place
        raise MeshmarkError(f"MESHMARK_COMM: {name} is not in {folder}")
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

    @property
    def word(self) -> str:
        """As in a spec: the option without its dashes, with underscores."""
        return self.option.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Description:
    """What an instrument says of itself (docs/reference/protocol.md)."""

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
        """It is measured by many processes, which a launcher starts."""
        return bool(self.raw.get("ranks"))

    def metric(self, name: str) -> Metric:
        """The metric of this name, which there is."""
        return next(m for m in self.metrics if m.name == name)

    def parameter(self, word: str) -> Parameter:
        """The parameter of a spec's word or an option.

        Raises:
            UsageError: there is none of that name.
        """
        wanted = word.removeprefix("--").replace("-", "_")
        for p in self.parameters:
            if wanted in (p.word, p.name):
                return p
        known = ", ".join(p.word for p in self.parameters)
        raise UsageError(f"{self.name}: found '{quoted(word)}', allowed are {known}")


def descriptions() -> dict[str, Description]:
    """Every instrument's description, by name; those of ranks only where a program for them was built.

    Raises:
        MeshmarkError: a program does not answer.
    """
    found = _described(find_probe())
    for kind in KINDS:  # a program whose library is not here any more does not even start
        try:
            return {**found, **_described(find_comm(kind))}
        except MeshmarkError:
            continue
    return found


@cache
def _described(probe: Path) -> dict[str, Description]:
    try:
        done = subprocess.run([str(probe), "--describe"], capture_output=True, timeout=30, check=True)
        found = json.loads(done.stdout)
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
                    )
                    for p in d["parameters"]
                ),
                tuple(map(Metric.from_json, d["metrics"])),
                tuple(d["identity"]),
                d,
            )
            for d in found
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as why:
        raise MeshmarkError(f"{probe.name} does not describe itself: {why}", hint="make setup") from why


def description(instrument: str) -> Description:
    """Raises UsageError for an unknown instrument, naming the known ones."""
    known = _described(find_probe())
    if instrument not in known:
        known = descriptions()
    if instrument not in known:
        lacking = (
            ""
            if any(d.ranks for d in known.values())
            else (
                "those among ranks need an MPI library: install its development package, then make setup, or build the "
                "wheel anew"
            )
        )
        raise UsageError(f"instrument: found '{quoted(instrument)}', allowed are {', '.join(known)}", lacking)
    return known[instrument]


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """Operands of a kernel of `bandwidth` for each element, as its description counts them."""

    reads: int
    writes: int
    allocates: int  # lines that ordinary stores read first

    @property
    def net(self) -> int:
        """Operands that the program asks for, as STREAM counts them."""
        return self.reads + self.writes

    def gross(self, store: str) -> int:
        """Operands that move, with `ordinary` or `streaming` stores."""
        return self.net + (self.allocates if store == "ordinary" else 0)

    def read_share(self, store: str) -> float:
        """Of what moves."""
        return (self.gross(store) - self.writes) / self.gross(store)


def stream_kernels() -> dict[str, StreamKernel]:
    """By name, in the order of the description."""
    told: Mapping[str, Mapping[str, int]] = description("bandwidth").raw["work"]["kernels"]
    return {name: StreamKernel(k["reads"], k["writes"], k["allocates"]) for name, k in told.items()}
