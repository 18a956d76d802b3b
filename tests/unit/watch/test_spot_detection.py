"""Injected hot spots are reported and balanced loads are not, on simulated machines; bench/watch_spots.py runs more."""

from __future__ import annotations

import pytest

from meshmark.model.machine import machine_names
from support.spot_cases import DEVELOPMENT, VALIDATION, SpotOutcome, balanced_cases, injected_cases, judge

SEED = 7


def test_every_model_is_a_model_of_the_evaluation() -> None:
    assert sorted((*DEVELOPMENT, *VALIDATION)) == sorted(machine_names())


def test_a_hot_spot_beside_a_throughput_load_is_told_from_the_load() -> None:
    case = next(c for c in injected_cases("gs1280-4", SEED) if "throughput" in c.name)
    outcome = judge(case)
    assert outcome.is_clear and not outcome.false
    assert outcome.latency is not None and outcome.latency < 250


@pytest.mark.slow
def test_precision_and_recall_are_high_on_several_models() -> None:
    outcomes: list[SpotOutcome] = []
    for model in ("gs1280-8", "gs1280-16", "es80", "e325", "xeon5500", "p690", "gs320-32", "altix3700"):
        outcomes += [judge(c) for c in (*balanced_cases(model, SEED), *injected_cases(model, SEED))]
    right = sum(o.is_clear and not o.is_missed for o in outcomes)
    missed = [o.case.name for o in outcomes if o.is_missed]
    wrong = [(o.case.machine.name, o.case.name, o.false) for o in outcomes if o.false]
    assert right / (right + len(wrong)) >= 0.98, wrong
    assert right / (right + len(missed)) >= 0.98, missed
    default = [o for o in outcomes if o.case.name in {"throughput", "random_reads"}]
    assert len(default) == 16 and not any(o.false for o in default)  # 1,000 frames of each
