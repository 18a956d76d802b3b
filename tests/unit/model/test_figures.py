"""Key figures of modelled machines: what limits what."""

from __future__ import annotations

import pytest

from meshmark.model.figures import figures
from meshmark.model.machine import find_machine

BOUND = "network bound, uniform reads"


def bound(name: str, *settings: str) -> float:
    found = figures(find_machine(name, list(settings)), simulate=False)
    return next(f.value for f in found if f.name == BOUND)


def test_requests_take_bandwidth_of_links_as_lines_do() -> None:
    flits = {bound("gs1280-8", f"packets.request_flits={n}") * (n + 19) for n in (1, 3, 19)}
    assert max(flits) == pytest.approx(min(flits))


@pytest.mark.parametrize("name", ["gs1280-8", "es80"])
def test_no_load_of_uniform_reads_exceeds_the_bound(name: str) -> None:
    """The bound is that of the most loaded link; reads of the own node, which need none, make 1 of n."""
    made = {f.name: f.value for f in figures(find_machine(name))}
    (reads,) = (v for k, v in made.items() if k.startswith("reads of random CPUs") and k.endswith(": bandwidth"))
    assert reads <= made[BOUND] * 8 / 7
