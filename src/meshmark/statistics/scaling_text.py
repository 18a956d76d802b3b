"""Describes a scaling in words, for terminals and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meshmark.values.units import number


def scaling_title(one: Mapping[str, Any]) -> str:
    """Return `scaling with threads, build=O2` for an object of `scaling` that `measure app --json` prints."""
    return f"scaling with {one['dimension']}" + (f", {one['others']}" if one["others"] else "")


def scaling_lines(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield speedup and efficiency of each number of workers, then the fitted laws."""
    for point in one["points"]:
        interval = point["interval"]
        bounds = "" if interval is None else f" ({100 * interval[0]:.0f} to {100 * interval[1]:.0f} %)"
        kind = f", {': '.join(filter(None, (point['kind'], point['reason'])))}" if point["kind"] else ""
        yield (
            f"{point['workers']}: speedup {point['speedup']:.2f}, "
            f"efficiency {100 * point['efficiency']:.0f} %{bounds}{kind}"
        )
    if one["amdahl"]:
        yield f"Amdahl's law: serial share {_share(one['amdahl'], 'serial')}"
    if one["universal"]:
        fit = one["universal"]
        has_peak = fit["peak"] and fit["coherency_interval"] and fit["coherency_interval"][0] > 0
        peak = f"; fastest at {fit['peak']:.0f}" if has_peak else ""
        yield f"universal law: serial share {_share(fit, 'serial')}, coherency {_share(fit, 'coherency')}{peak}"


def _share(fit: Mapping[str, Any], name: str) -> str:
    interval = fit[f"{name}_interval"]
    bounds = "" if interval is None else f" ({number(100 * interval[0], 2)} to {number(100 * interval[1], 2)} %)"
    return f"{number(100 * fit[name], 2)} %{bounds}"
