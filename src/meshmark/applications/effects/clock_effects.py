"""Determines how the speed of an application follows the core clock, from runs with several limits of the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meshmark.applications.configuration import Configuration, varied
from meshmark.applications.resources.machine_limits import clock_hz, usual_clock
from meshmark.statistics.clock import clock_effect
from meshmark.store.record import Better


def clock_effects(
    values: Mapping[str, Mapping[int, float]], ran: Sequence[Configuration], better: Better
) -> list[dict[str, Any]]:
    """Judge how the rates depend on the clock, for each combination of the other dimensions.

    Args:
        values: Figures of the runs of each configuration, by label and round. If lower figures are better, such as
            times, the rate is 1 over the figure.
        ran: Configurations with a valid run.
        better: Whether `lower` or `higher` figures are better.
    """
    effects = []
    for others, configurations in varied(ran, "clock").items():
        rates: dict[float, Mapping[int, float]] = {}
        left_out = ""
        for configuration in sorted(configurations, key=lambda c: clock_hz("clock", c.values["clock"]) is None):
            hz = clock_hz("clock", configuration.values["clock"])
            if hz is None:
                clock = usual_clock()
                if isinstance(clock, str):
                    left_out = f"clock={configuration.values['clock']} is left out, because {clock}"
                    continue
                hz = clock
            rates.setdefault(
                hz, {r: v if better == "higher" else 1 / v for r, v in values[configuration.label].items() if v > 0}
            )
        effects.append({"others": others, **asdict(clock_effect(rates, left_out=left_out))})
    return effects
