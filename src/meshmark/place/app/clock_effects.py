"""Says how the speed of an application follows the core clock, from runs with several limits of the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meshmark.place.app.configuration import Configuration, varied
from meshmark.place.app.machine_limits import clock_hz, usual_clock
from meshmark.store.record import Better
from meshmark.values.clock import clock_effect


def clock_effects(
    values: Mapping[str, Mapping[int, float]], ran: Sequence[Configuration], better: Better
) -> list[dict[str, Any]]:
    """Judge the rates over the clock, for each combination of the other dimensions.

    Args:
        values: Figures of the runs of each configuration, by label and round; the rate is 1 over a figure that is
            better if lower, such as a time.
    """
    effects = []
    for others, these in varied(ran, "clock").items():
        rates: dict[float, Mapping[int, float]] = {}
        left_out = ""
        for one in sorted(these, key=lambda c: clock_hz("clock", c.values["clock"]) is None):
            hz = clock_hz("clock", one.values["clock"])
            if hz is None:
                usual = usual_clock()
                if isinstance(usual, str):
                    left_out = f"clock={one.values['clock']} is left out, because {usual}"
                    continue
                hz = usual
            rates.setdefault(hz, {r: v if better == "higher" else 1 / v for r, v in values[one.label].items() if v > 0})
        effects.append({"others": others, **asdict(clock_effect(rates, left_out=left_out))})
    return effects
