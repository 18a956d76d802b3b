"""What studies run and conclude, with made-up runs in place of real ones: the machine here may be too small or busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import UsageError
from meshmark.load.placing import Here
from meshmark.load.prescription import Prescription
from meshmark.load.program import read_program
from meshmark.load.result import Totals
from meshmark.load.scenario import Member
from meshmark.load.studies.bench import How
from meshmark.load.studies.cells import LEAD_S
from meshmark.load.studies.curve import interference_curve
from meshmark.load.studies.interference import MEMORY_BOUND, interference_matrix, kernel_class
from meshmark.load.studies.outcome import Cell, Outcome, Use
from meshmark.load.synthesis import explain
from meshmark.load.variants import Variant
from support.made_base import made_base

TWICE = How(repetitions=2, rounds=0)


@pytest.fixture(scope="module")
def variants() -> list[Variant]:
    return list(made_base(seed=1, thread_counts=(1, 2), most=400))


def run_of(cell: Cell, repetition: int, wall_s: float) -> Outcome:
    use = Use(
        program=cell.measured[0],
        copy=0,
        how="ok",
        wall_s=wall_s,
        waiting_s=0.0,
        user_s=wall_s,
        system_s=0.0,
        threads=1,
        counts={},
    )
    return Outcome(
        cell=cell.name,
        repetition=repetition,
        run="",
        start="",
        measured=cell.measured,
        uses=(use,),
        totals=Totals(cpus=4, **dict.fromkeys(TOTALS, 1.0)),
        flags=frozenset(),
    )


TOTALS = ("bench_s", "available_s", "user_s", "system_s", "idle_s", "completion_s", "run_s", "waiting_s")


class Runs:
    """Takes the place of `run_cells`: keeps what it was to run, and says how long each cell took."""

    def __init__(self, wall_s: Callable[[str], float]) -> None:
        self.groups: Sequence[Sequence[Cell]] = ()
        self.wall_s = wall_s

    def __call__(
        self, _: Path, groups: Sequence[Sequence[Cell]], repetitions: int, *__: Any
    ) -> dict[str, list[Outcome]]:
        self.groups = groups
        return {
            c.name: [run_of(c, r, self.wall_s(c.name)) for r in range(repetitions)] for group in groups for c in group
        }


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], float]], Runs]:
    """A host with four CPUs, on which cells take the time that a function of their name says."""
    monkeypatch.setattr(Here, "now", staticmethod(lambda: Here((0, 1, 2, 3), 0)))

    def on(wall_s: Callable[[str], float]) -> Runs:
        runs = Runs(wall_s)
        monkeypatch.setattr("meshmark.load.studies.bench.run_cells", runs)
        return runs

    return on


def program_of(cell: Cell, name: str, repetition: int = 0) -> Member:
    return next(p for p in cell.scenarios[repetition].programs if p.name == name)


def test_neighbours_of_a_curve_share_its_rate(four_cpus: Any, variants: list[Variant], tmp_path: Path) -> None:
    runs = four_cpus(lambda name: 1.0 if "alone" in name else 1.5)
    reach = explain(variants, Prescription(run_time_s=0.5, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    assert reach is not None
    rates = [2 * (reach[0] + share * (reach[1] - reach[0])) for share in (0.2, 0.6)]
    found = interference_curve(
        ["true"],
        variants,
        tmp_path / "study",
        neighbours=2,
        rates_gb_per_s=rates,
        held_out_gb_per_s=(),
        neighbour_run_time_s=0.5,
        outlasts=1,
        how=TWICE,
    )
    assert [p.x for p in found.points] == pytest.approx(rates)
    assert [p.slowdown.ratio for p in found.points] == pytest.approx([1.5, 1.5])
    for cell, rate in zip(runs.groups[0][1:], rates, strict=True):
        beside = next(p for p in cell.scenarios[0].programs if p.name not in cell.measured)
        assert beside.file is not None
        assert beside.copies == 2
        assert read_program(beside.file).planned()["memory_gb_per_s"] == pytest.approx(rate / 2, rel=0.05)


def matrix(folder: Path, variants: list[Variant], classes: Sequence[str] = (), **more: Any) -> Any:
    return interference_matrix(variants, folder / "study", classes=classes, run_time_s=0.1, how=TWICE, **more)


def test_a_matrix_sets_each_class_beside_each_and_divides_by_its_time_alone(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    times = {"stream alone": 2.0, "dense alone": 1.0, "stream beside dense": 3.0, "dense beside stream": 4.0}
    runs = four_cpus(lambda name: times.get(name, 6.0))
    found = matrix(tmp_path, variants, ["stream", "dense", "stream"])
    assert found.classes == ("stream", "dense")
    slowdowns = {pair: p.slowdown.ratio for pair, p in found.cells.items()}
    assert slowdowns == pytest.approx(
        {("stream", "stream"): 3, ("stream", "dense"): 1.5, ("dense", "stream"): 4, ("dense", "dense"): 6}
    )
    assert [line.split() for line in found.table.splitlines()][1:] == [
        ["stream", "3.000", "1.500"],
        ["dense", "4.000", "6.000"],
    ]
    slow = [r for r in found.records if r.metric == "slowdown"]
    assert {(r.conditions["class"], r.conditions["neighbour"]) for r in slow} == found.cells.keys()
    for group in runs.groups:
        alone, *pairs = group
        assert [program_of(alone, "measured", r).cpus for r in (0, 1)] == [((0,),), ((1,),)]
        for cell in pairs:
            assert cell.measured == ("measured",)
            for repetition, (left, right) in enumerate(((0, 1), (1, 0))):
                measured = program_of(cell, "measured", repetition)
                neighbour = program_of(cell, "neighbour", repetition)
                assert (measured.cpus, neighbour.cpus) == (((left,),), ((right,),))
                assert (measured.start_s, neighbour.start_s) == ((LEAD_S,), (0.0,))  # the neighbour is there before
                assert measured.file is not None
                assert neighbour.file is not None
                work, beside = read_program(measured.file).planned(), read_program(neighbour.file).planned()
                assert work["run_time_s"] == pytest.approx(0.1, rel=0.1)
                assert beside["run_time_s"] > 5 * work["run_time_s"]


def test_programs_of_a_matrix_call_kernels_of_their_class_alone(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    runs = four_cpus(lambda _: 1.0)
    matrix(tmp_path, variants, ["stream@memory", "integer"], cpus=(2, 3))
    for group, kind in zip(runs.groups, ("stream", "integer"), strict=True):
        measured = program_of(group[0], "measured")
        assert measured.cpus == ((2,),)
        assert measured.file is not None
        called = [p.variant for p in read_program(measured.file).parts]
        assert {v.kind for v in called} == {kind}
        assert {v.threads for v in called} == {1}
        if kind == "stream":
            assert {v.served_by for v in called} == {"memory"}


def test_a_matrix_without_classes_has_every_kind_that_memory_serves(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    four_cpus(lambda _: 1.0)
    served = {v.kind for v in variants if v.threads == 1 and v.served_by == "memory"}
    found = matrix(tmp_path, variants)
    assert found.classes == tuple(f"{k}@memory" for k in MEMORY_BOUND if k in served)
    near = [v for v in variants if v.served_by != "memory"]
    with pytest.raises(UsageError, match="no sequential variant served by memory; name classes"):
        matrix(tmp_path / "near", near)
    with pytest.raises(UsageError, match=r"found 'spiral'; allowed are kernels and kinds \(.*stream.*also with @LEVEL"):
        matrix(tmp_path / "unknown", variants, ["stream", "spiral"])


def test_a_class_is_a_kind_or_a_kernel_at_a_level(variants: list[Variant]) -> None:
    v = variants[0]
    assert kernel_class(v.kind)(v)
    assert kernel_class(v.kernel)(v)
    assert kernel_class(f"{v.kind}@{v.served_by}")(v)
    assert not kernel_class(f"{v.kind}@{'L1' if v.served_by != 'L1' else 'memory'}")(v)
    assert not kernel_class("no such kind")(v)
    with pytest.raises(UsageError, match="found 'stream@L9'; levels are L1, L2, L3, memory"):
        kernel_class("stream@L9")
