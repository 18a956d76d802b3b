"""Messages between the CPUs of modelled machines: the limits of neighbours that read from each other."""

from __future__ import annotations

import pytest

from meshmark.model.machine import find_machine
from meshmark.model.patterns import PatternRequest, run_pattern

LINES = 1024
FLIT_NS = 4 / 3.068  # a link of a GS1280 moves 4 bytes at 3.068 GB/s
DATA, REQUEST = 19, 3  # flits


def swap_us(distance: int, *settings: str, block: str = "64KiB") -> float:
    request = PatternRequest("swap", distance=str(distance), block=block)
    records, _ = run_pattern(find_machine("gs1280-16", list(settings)), request, "test")
    (elapsed,) = (r.value for r in records if r.metric == "elapsed")
    return elapsed * 1e6


def test_partners_in_a_row_and_in_a_column_need_the_same_time() -> None:
    """All links have one rate, so that rows and columns take equally long, even if partners start simultaneously."""
    assert swap_us(4) == pytest.approx(swap_us(1), rel=0.01)


def test_two_controllers_get_two_grants_for_one_request_of_the_cpu() -> None:
    """The partner that is ahead reads at twice the rate of the other, whose requests wait for its lines."""
    ahead_us = (
        LINES * (DATA + REQUEST / 2) * FLIT_NS / 1000
    )  # lines of the first partner, and one request of the other for every two lines
    rest_us = LINES / 2 * DATA * FLIT_NS / 1000  # then the other partner reads its second half alone
    for distance in (1, 4):
        assert swap_us(distance) == pytest.approx(ahead_us + rest_us, rel=0.01)


def test_with_one_controller_neighbours_reach_the_limit_of_their_link() -> None:
    limit_us = LINES * (DATA + REQUEST) * FLIT_NS / 1000
    for distance in (1, 4):
        assert swap_us(distance, "node.controllers=1") == pytest.approx(limit_us, rel=0.01)
    for distance in (2, 8):  # these distances have two paths
        assert swap_us(distance) == pytest.approx(limit_us, rel=0.04)


def test_the_start_takes_no_part_of_a_short_message() -> None:
    assert swap_us(1, block="64") == pytest.approx(swap_us(4, block="64"), rel=0.1)
    assert swap_us(1, block="64") < 0.2
