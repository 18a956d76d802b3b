"""Texts about shared results, for the terminal and for pages."""

from __future__ import annotations

from meshmark.values.units import counted, number, scale_for
from meshmark.views.shared.form import Figure, Host


def topology_text(host: Host) -> str:
    """Return how many packages, nodes, cores and CPUs a machine has."""
    counts = ((host.packages, "package"), (host.nodes, "NUMA node"), (host.cores, "core"), (host.cpus, "CPU"))
    return ", ".join(counted(n, name) for n, name in counts)


def figure_interval(figure: Figure) -> str:
    """Return the interval of a figure in the unit in which its value is shown; "" if it has none."""
    scale = scale_for(figure.unit, figure.value)
    return "" if figure.interval is None else " to ".join(number(bound / scale.factor) for bound in figure.interval)
