"""Profiles of simulated programs, which affect each other exactly like mixtures of pressures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshmark.experiments.rounds import Rounds
from meshmark.profiles.division import CpuDivision
from meshmark.profiles.mixture import QUIET, speed
from meshmark.profiles.pressure import Kind
from meshmark.profiles.profile import KernelRate, PressureEffect, ProgramProfile
from meshmark.profiles.session import ProfilePlan, records
from meshmark.store.record import Record

KINDS: Mapping[str, Kind] = {"compute": "compute", "cache 8 MiB": "cache", "memory 50 %": "memory", "memory": "memory"}
RESPONSES = {
    "compute": {"compute": 0.97, "cache 8 MiB": 0.96, "memory 50 %": 0.97, "memory": 0.96},
    "cache 8 MiB": {"compute": 0.98, "cache 8 MiB": 0.60, "memory 50 %": 0.80, "memory": 0.50},
    "memory": {"compute": 0.99, "cache 8 MiB": 0.90, "memory 50 %": 0.75, "memory": 0.55},
}
MIXTURES: Mapping[str, Mapping[str, float]] = {
    "stream": {"memory": 0.9, QUIET: 0.1},
    "solver": {"cache 8 MiB": 0.5, "compute": 0.3, QUIET: 0.2},
    "search": {"compute": 1.0},
    "idle": {QUIET: 1.0},
}
SPEEDS = {
    "stream": {"compute": 0.99, "cache 8 MiB": 0.9, "memory 50 %": 0.8, "memory": 0.6},
    "solver": {"compute": 0.98, "cache 8 MiB": 0.7, "memory 50 %": 0.8, "memory": 0.68},
    "search": {"compute": 0.95, "cache 8 MiB": 0.95, "memory 50 %": 0.95, "memory": 0.95},
    "idle": {"compute": 1.0, "cache 8 MiB": 1.0, "memory 50 %": 1.0, "memory": 1.0},
}
FOOTPRINTS = {"compute": 0, "cache 8 MiB": 4 << 20, "memory": 64 << 20}  # of each of two processes
RATES = {"compute": 2e6, "cache 8 MiB": 1.5e7, "memory": 5e6}
NOISE = (1.0, 1.002, 0.998, 1.001, 0.999)


def made_profile(name: str, noise: Sequence[float] = NOISE, **more: Any) -> ProgramProfile:
    """Return the profile of a simulated program."""
    probes = {probe: speed(MIXTURES[name], speeds) for probe, speeds in RESPONSES.items()}
    effects = tuple(
        PressureEffect(
            name=pressure,
            kind=kind,
            footprint_bytes=0 if kind == "compute" else 8 << 20 if kind == "cache" else 128 << 20,
            bytes_per_s={"memory": 20e9, "memory 50 %": 10e9, "cache 8 MiB": 50e9}.get(pressure, 0.0),
            slowdowns=tuple(n / SPEEDS[name][pressure] for n in noise),
            caused=tuple(n / probes[pressure] for n in noise) if pressure in probes else (),
        )
        for pressure, kind in KINDS.items()
    )
    fields: dict[str, Any] = {
        "name": name,
        "command": f"./{name} -n 4",
        "machine": "made-up",
        "program_cpus": (0, 1),
        "neighbour_cpus": (2, 3),
        "shared_bytes": 16 << 20,
        "metric": "elapsed",
        "unit": "s",
        "better": "lower",
        "alone": tuple(5.0 * n for n in noise),
        "effects": effects,
        "kernels": tuple(
            KernelRate(name=name, kind=KINDS[name], footprint_bytes=FOOTPRINTS[name], units_per_s=RATES[name])
            for name in RESPONSES
        ),
        "responses": RESPONSES,
        **more,
    }
    return ProgramProfile(**fields)


def recorded(*names: str) -> list[Record]:
    """Return the records of profiles."""
    rows = []
    for name in names:
        profile = made_profile(name)
        plan = ProfilePlan(
            command=profile.command.split(),
            name=name,
            seed=1,
            budget_s=1.0,
            timeout_s=None,
            margin=0.0,
            pattern="",
            metric="",
            better="",
            restore="",
            run="made",
            started="2026-12-01T00:00:00Z",
            rounds=len(NOISE),
            division=CpuDivision(
                program=(0, 1),
                neighbours=(2, 3),
                first_bytes=32 << 10,
                private_bytes=512 << 10,
                shared_bytes=16 << 20,
                last_bytes=16 << 20,
                siblings=False,
            ),
            pressures=[],
            probes=[],
        )
        rows += records(profile, Rounds(plan), "profile")
    return rows
