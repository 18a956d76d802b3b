"""Base data: measured by a survey of the instrument `kernels`, read back as variants for synthesis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from meshmark.errors import MeshmarkError
from meshmark.load.variants import COUNTS, LEVELS, Variant
from meshmark.store.record import Record

CALL_S = 2.5e-4  # aimed at: between 0.05 and 1 ms, so that windows of a tenth of a second keep the mean
SPECS = ("load", "load-quick")


def _size(volume: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if volume >= 1 << power and volume % (1 << (power - 2)) == 0:
            return f"{volume / (1 << power):g}{unit}"
    return f"{volume}B"


def variants_of(records: Iterable[Record]) -> list[Variant]:
    """Variants with the times and counts of one call, from results of the instrument `kernels`.

    A call is a power of two of units, as near a quarter of a millisecond as may be. Results whose kernel's check
    failed are left out.
    """
    wall: dict[tuple[str, int, int, int], Record] = {}
    cpu: dict[tuple[str, int, int, int], Record] = {}
    for r in records:
        if r.instrument != "kernels" or "unverified" in r.flags:
            continue
        c = r.conditions
        key = (str(c["kernel"]), int(_number(r, "volume_bytes")), int(_number(r, "stride")),
               int(_number(r, "threads")))  # fmt: skip
        {"unit_time": wall, "unit_cpu_time": cpu}.get(r.metric, {})[key] = r
    found = []
    for key, r in sorted(wall.items()):
        kernel, volume, stride, threads = key
        if key not in cpu or not r.value > 0:
            continue
        window = 2 ** max(0, round(math.log2(CALL_S / r.value)))
        level = str(r.conditions.get("served_by", "memory"))
        cpu_s = max(0.0, cpu[key].value) * window
        found.append(Variant(
            name=f"{kernel}/{_size(volume)}/s{stride}/t{threads}" if volume else f"{kernel}/s{stride}/t{threads}",
            kernel=kernel, kind=str(r.conditions["kind"]), volume_bytes=volume,
            stride=stride, threads=threads, window=window, team=bool(r.conditions.get("team")),
            served_by=level if level in LEVELS else "memory", wall_s=r.value * window, cpu_s=cpu_s,
            system_s=min(1.0, max(0.0, _number(r, "system_share"))) * cpu_s,
            wall_interval_s=(r.interval[0] * window, r.interval[1] * window) if r.interval else None,
            **{name: _number(r, name) * window for name in COUNTS},
        ))  # fmt: skip
    return found


def _number(r: Record, name: str) -> float:
    value = r.conditions.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MeshmarkError(f"base data: {r.metric}: condition {name}: found {value!r}, a number is needed")
    return float(value)


def base_run(runs: Path, machine: str, name: str = "") -> Path | None:
    """The folder of base data: of that name, or the newest full one of this machine, else its newest quick one.

    Raises:
        MeshmarkError: there is none of that name, or it is of another machine.
    """
    from meshmark.measure.survey import find_run, load_run

    if name:
        folder = find_run(name, runs)
        info = load_run(folder)[2]
        if info.spec_name not in SPECS:
            raise MeshmarkError(f"--base: {folder} holds a survey '{info.spec_name}', no base data",
                                "meshmark load base takes them")  # fmt: skip
        if info.machine != machine:
            raise MeshmarkError(f"--base: {folder} is of machine {info.machine}, this one is {machine}",
                                "meshmark load base takes this machine's")  # fmt: skip
        return folder
    newest: dict[str, Path] = {}
    for folder in sorted(runs.glob("*"), key=lambda p: p.stat().st_mtime):
        if not (folder / "plan.json").exists():
            continue
        try:
            info = load_run(folder)[2]
        except MeshmarkError:
            continue
        if info.spec_name in SPECS and info.machine == machine:
            newest[info.spec_name] = folder
    return next((newest[s] for s in SPECS if s in newest), None)
