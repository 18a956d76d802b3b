"""Tests of runs of claims: stored results, interrupted runs, and requirements on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.measure.runs.journal import JournalContent
from meshmark.measure.runs.plan import SurveyStep
from meshmark.measure.runs.runner import PlanRunner, StepResult
from meshmark.store.record import median, median_interval
from meshmark.store.store import Store
from meshmark.validation.claims import run
from meshmark.validation.claims.bench import Bench, EffectTerm, selected, terms_of
from meshmark.validation.claims.catalogue import chosen
from meshmark.validation.claims.judging import Effect, of_effects
from meshmark.validation.claims.measured import count, ratio
from meshmark.validation.claims.registry import call
from meshmark.validation.claims.run import ClaimsRequest, agreement, begun, history, latest, resumed, run_tests
from support.made_run import record

COMPUTED = ("P06", "P08", "R01", "M01")
FACTS: Mapping[str, Any] = {
    "topology": {
        "cores": [{"cpus": [0, 2]}, {"cpus": [1, 3]}],
        "allowed_cpus": [1, 2, 3],
        "nodes": [{"memory_bytes": 1 << 30}, {"memory_bytes": 0}],
        "packages": [{"cpus": [0, 1, 2, 3]}],
    },
    "virtual": {"guest": False},
    "pages": {"thp": "never", "huge": [{"size_bytes": 2 << 20, "free": 3}]},
    "memory": {"peak_bytes_per_s": {"absent": "no table"}},
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(run, "remember", lambda _: None)  # it would read the facts of this machine
    return Store(tmp_path / "store")


def bench(store: Store, name: str = "claims-20261125T200000-0", **changed: Any) -> Bench:
    new_bench = Bench(store, name, store.folder.parent / "journals", facts_of=lambda: {**FACTS, **changed})
    new_bench.__dict__["host"] = "n042"  # the property would read the hardware
    return new_bench


def test_verdicts_by_computation_are_stored_with_what_they_found(store: Store) -> None:
    verdicts = run_tests(bench(store), ClaimsRequest(COMPUTED, on="computed"))
    assert [(v.claim, v.word, v.basis) for v in verdicts] == [
        ("M01", "holds", "computed"),
        ("P06", "holds", "printed"),
        ("P08", "does not hold", "printed"),
        ("R01", "does not hold", "printed"),
    ]
    stored_verdicts = {k: v[-1] for k, v in history(store).items()}
    assert {k: (v.word, v.effect) for k, v in stored_verdicts.items()} == {
        v.claim: (v.word, v.effect) for v in verdicts
    }
    assert stored_verdicts["R01"].run == "claims-20261125T200000-0" and stored_verdicts["R01"].step == "R01-computed"
    assert not (store.folder / ".measuring").exists() or not list((store.folder / ".measuring").iterdir())


def test_an_interrupted_run_keeps_its_verdicts_and_resumes_with_the_rest(store: Store) -> None:
    def stop(done: int, total: int, step: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    request = ClaimsRequest(COMPUTED, on="computed")
    with begun(store, request) as (name, folder), pytest.raises(KeyboardInterrupt):
        run_tests(replace(bench(store, name), folder=folder), request, stop)
    assert {*history(store)} == {"M01", "P06"}, "each verdict is stored as soon as it is known"
    texts: list[str] = []
    with resumed(store) as (run_name, run_folder, run_request):
        assert (run_name, run_folder, run_request) == (name, folder, request)
        verdicts = run_tests(
            replace(bench(store, run_name), folder=run_folder), run_request, lambda d, t, s: texts.append(s)
        )
    assert [v.claim for v in verdicts] == ["M01", "P06", "P08", "R01"] and len(texts) == 4
    assert {v[-1].run for v in history(store).values()} == {name}
    with pytest.raises(UsageError, match="--resume: found no incomplete run of claims"), resumed(store):
        pass


def test_a_resumed_run_makes_no_test_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(where: str, name: str, *more: Any) -> list[Effect]:
        calls.append(more[1])
        return call(where, name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "call", counted)
    request = ClaimsRequest(("P06", "P23", "M01"), on="")
    for _ in range(2):  # the second run finds all verdicts, including claims that could not be tested
        verdicts = run_tests(bench(store), request)
        assert [v.word for v in verdicts] == ["holds", "holds", "cannot be tested here"]
    assert sorted(calls) == ["M01-computed", "P06-computed"]


def test_a_damaged_request_is_an_error_in_one_line(store: Store) -> None:
    with begun(store, ClaimsRequest(("P06",))) as (_, folder):
        pass
    (folder / "claims.json").write_text('{"ids": 3}')
    with pytest.raises(MeshmarkError, match=r"cannot read .*claims\.json"), resumed(store):
        pass


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"cpus": 8}, "it needs 8 CPUs, this machine has 3"),
        ({"cores": 3}, "it needs 3 cores, this machine has 2"),
        ({"nodes": 2}, "it needs 2 memory nodes, this machine has 1"),
        ({"packages": 2}, "it needs 2 packages, this machine has 1"),
        ({"pages": "thp"}, "it needs pages of thp, this machine provides none"),
        ({"pages": "1GiB"}, "it needs pages of 1GiB, this machine provides none"),
        ({"peak": True}, "it needs the peak bandwidth of the memory, which the firmware does not state here"),
        ({"cpus": 3, "cores": 2, "nodes": 1, "smt": True, "pages": "2MiB"}, ""),
    ],
)
def test_what_a_host_lacks_is_said(store: Store, needs: Mapping[str, Any], reason: str) -> None:
    assert bench(store).lacks(needs) == reason


def test_smt_counts_only_with_two_cpus_that_may_be_used(store: Store) -> None:
    single_core = bench(store, topology={**FACTS["topology"], "allowed_cpus": [0, 1]})
    assert "SMT" in single_core.lacks({"smt": True}) and single_core.lacks({"cores": 2}) == ""


def test_options_name_what_depends_on_the_host(store: Store) -> None:
    b = bench(store)
    assert [b.filled(v) for v in ("@cpu", "@pair", "@cores", "@cpus", "64KiB", 3)] == ["1", "2,1", 2, 3, "64KiB", 3]


def test_terms_are_divided_and_have_what_all_share() -> None:
    first, second, third = terms_of(
        {
            "instrument": "bandwidth",
            "metric": "bandwidth_net",
            "both": {"kernel": "copy"},
            "a": {"threads": 1},
            "b": {"threads": 2, "Instrument": "latency", "Metric": "load_latency"},
            "more": [{"threads": 3, "Power": -1, "Set": ["x=1"], "Machine": "es45"}],
        }
    )
    assert first == EffectTerm("bandwidth", "bandwidth_net", {"kernel": "copy", "threads": 1})
    assert (second.instrument, second.metric, second.power) == ("latency", "load_latency", -1.0)
    assert (third.power, third.settings, third.machine) == (-1.0, ("x=1",), "es45")
    with pytest.raises(MeshmarkError, match="a: found nothing"):
        terms_of({"instrument": "latency"})


def answered(
    value_of: Callable[[Sequence[str]], float], asked: list[SurveyStep]
) -> Callable[[PlanRunner, SurveyStep], StepResult]:
    """Return a replacement for `PlanRunner.run_step` that returns results immediately."""

    def run_step(_: PlanRunner, step: SurveyStep) -> StepResult:
        asked.append(step)
        value = value_of(step.argv)
        samples = tuple(value * (1 + k / 1000) for k in range(7))
        result = replace(
            record("bandwidth", "bandwidth_net", value),
            samples=samples,
            value=median(samples),
            interval=median_interval(samples),
            flags=frozenset(),
        )
        return StepResult(step, "ok", reading=JournalContent(records=[result]))

    return run_step


RATIO: Mapping[str, Any] = {
    "what": "streaming over ordinary stores",
    "instrument": "bandwidth",
    "metric": "bandwidth_net",
    "a": {"store": "streaming"},
    "b": {"store": "ordinary"},
}


def test_conditions_take_turns_in_fresh_processes_and_share_the_budget(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[SurveyStep] = []
    monkeypatch.setattr(PlanRunner, "run_step", answered(lambda argv: 3e9 if "streaming" in argv else 2e9, steps))
    (effect,) = ratio(bench(store), "H05-host", **RATIO)
    assert effect.value == pytest.approx(1.5, rel=0.01) and effect.interval is not None and not effect.doubt
    assert [s.id for s in steps[:4]] == ["H05-host.a.r1", "H05-host.b.r1", "H05-host.a.r2", "H05-host.b.r2"]
    assert len(steps) == 12 and sum(s.budget_s for s in steps) == pytest.approx(5.0)
    assert len({s.argv[s.argv.index("--seed") + 1] for s in steps}) == 6, "each process has a seed of its own"
    assert {step for _, step, _ in store.rows(run=bench(store).run)} == {s.id for s in steps}
    assert word(effect) == "holds"


def word(effect: Effect) -> str:
    return of_effects(chosen(["H05"])[0], "n042", "measured", [effect], "").word


def test_a_single_deviating_sample_counts_against_a_claim_of_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlanRunner, "run_step", answered(lambda _: 1.0, []))
    (effect,) = count(bench(store), "M19-host", **{k: v for k, v in RATIO.items() if k != "b"})
    assert effect.interval == (1.0, pytest.approx(1.006))


def test_what_a_process_cannot_measure_is_the_reason(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanRunner, "run_step", lambda _, step: StepResult(step, "failed", message="it died of SIGBUS"))
    (verdict,) = run_tests(bench(store), ClaimsRequest(("H05",), on="host"))
    assert verdict.word == "cannot be tested here" and "it died of SIGBUS" in verdict.reason
    with pytest.raises(AbsentError, match="gave no flop_rate"):
        selected([record("bandwidth", "bandwidth_net", 1e9)], "flop_rate", {})


def test_a_wrong_method_or_parameter_is_named(store: Store) -> None:
    with pytest.raises(MeshmarkError, match="method: found 'rate'; allowed: ") as error:
        call("host", "rate", bench(store), "H05-host", "host", {})
    assert error.value.hint == "did you mean ratio?"
    with pytest.raises(MeshmarkError, match=r"claims: coverage: .*sample"):
        call("computed", "coverage", bench(store), "", "", {"what": "w", "sample": [6, 9]})


def test_a_guest_is_refused_where_there_is_none(store: Store) -> None:
    with pytest.raises(AbsentError, match="--on guest: this host is not a guest"):
        run_tests(bench(store), ClaimsRequest(("R13",), on="guest"))
    with pytest.raises(UsageError, match="--on: found 'cray'; allowed: host, guest, computed"):
        ClaimsRequest(on="cray").trials()
    with pytest.raises(AbsentError, match="none of these claims is tested on es45"):
        ClaimsRequest(("M01",), on="es45").trials()


def test_history_has_every_verdict_and_two_runs_agree(store: Store) -> None:
    first = run_tests(bench(store, "claims-20261124T200000-0"), ClaimsRequest(COMPUTED, on="computed"))
    second = run_tests(bench(store, "claims-20261125T200000-0"), ClaimsRequest(COMPUTED, on="computed"))
    assert agreement(first, second) == (4, 4)
    assert all(len(v) == 2 and len(latest(v)) == 1 for v in history(store).values())
    assert agreement(first, [replace(v, word="inconclusive") for v in second]) == (0, 4)


def test_rows_of_another_version_are_left_out(store: Store) -> None:
    run_tests(bench(store), ClaimsRequest(("M01",), on="computed"))
    (row,) = store.query(instrument="claims")
    store.add("claims-20261126T000000-0", "x", [replace(row, conditions={"claim": "M01"})])
    assert len(history(store)["M01"]) == 1
