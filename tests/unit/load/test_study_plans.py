"""Test what studies run and conclude, with simulated runs, since this machine may be too small or too busy."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario.placing import HostResources
from meshmark.load.scenario.result import Totals
from meshmark.load.scenario.scenario import ScenarioProgram
from meshmark.load.studies.cells import LEAD_S
from meshmark.load.studies.curve import CurveStudy
from meshmark.load.studies.matrix import MEMORY_BOUND, MatrixStudy, kernel_class
from meshmark.load.studies.outcome import CellRun, CopyUse, StudyCell
from meshmark.load.studies.study import StudyOptions, memory_mib
from meshmark.load.synthesis import explain, synthesize
from meshmark.load.synthesis.program import dump_program, read_program
from support.made_base import made_base

TWICE = StudyOptions(repetitions=2, rounds=0)


@pytest.fixture(scope="module")
def variants() -> list[Variant]:
    return list(made_base(seed=1, thread_counts=(1, 2), most=400))


def run_of(cell: StudyCell, repetition: int, wall_s: float, reason: str = "") -> CellRun:
    use = CopyUse(
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
    return CellRun(
        cell=cell.name,
        repetition=repetition,
        run="",
        start="",
        measured=cell.measured,
        uses=(use,),
        totals=Totals(cpus=4, **dict.fromkeys(TOTALS, 1.0)),
        flags=frozenset(),
        reason=reason,
    )


TOTALS = ("bench_s", "available_s", "user_s", "system_s", "idle_s", "completion_s", "run_s", "waiting_s")


class Runs:
    """Replacement for `run_cells` that keeps the requested groups and returns simulated outcomes of each cell."""

    def __init__(self, wall_s: Callable[[str], float]) -> None:
        self.groups: Sequence[Sequence[StudyCell]] = ()
        self.wall_s = wall_s
        self.reason = ""  # reason that runs do not count
        self.fails: set[str] | None = None  # names of the cells whose runs do not count; None: all cells

    def __call__(
        self, _: Path, groups: Sequence[Sequence[StudyCell]], repetitions: int, *__: Any
    ) -> dict[str, list[CellRun]]:
        self.groups = groups
        return {
            c.name: [run_of(c, r, self.wall_s(c.name), self.reason_of(c)) for r in range(repetitions)]
            for group in groups
            for c in group
        }

    def reason_of(self, cell: StudyCell) -> str:
        return self.reason if self.fails is None or cell.name in self.fails else ""


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], float]], Runs]:
    """Simulate a host with four CPUs.

    The returned function installs and returns `Runs` in which a function of the cell's name gives its time in seconds.
    """
    monkeypatch.setattr(HostResources, "now", staticmethod(lambda: HostResources((0, 1, 2, 3), 0)))

    def on(wall_s: Callable[[str], float]) -> Runs:
        runs = Runs(wall_s)
        monkeypatch.setattr("meshmark.load.studies.study.run_cells", runs)
        return runs

    return on


def program_of(cell: StudyCell, name: str, repetition: int = 0) -> ScenarioProgram:
    return next(p for p in cell.scenarios[repetition].programs if p.name == name)


def test_neighbours_of_a_curve_share_its_rate(four_cpus: Any, variants: list[Variant], tmp_path: Path) -> None:
    runs = four_cpus(lambda name: 1.0 if "alone" in name else 1.5)
    reach = explain(variants, TargetProfile(run_time_s=0.5, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    assert reach is not None
    rates = [2 * (reach[0] + share * (reach[1] - reach[0])) for share in (0.2, 0.6)]
    study = CurveStudy(
        tmp_path / "study",
        work=["true"],
        variants=variants,
        neighbours=2,
        rates_gb_per_s=rates,
        held_out_gb_per_s=(),
        neighbour_run_time_s=0.5,
        outlasts=1,
        options=TWICE,
    ).run()
    assert [p.x for p in study.points] == pytest.approx(rates)
    assert [p.slowdown.ratio for p in study.points] == pytest.approx([1.5, 1.5])
    for cell, rate in zip(runs.groups[0][1:], rates, strict=True):
        neighbour = next(p for p in cell.scenarios[0].programs if p.name not in cell.measured)
        assert neighbour.file is not None
        assert neighbour.copies == 2
        assert read_program(neighbour.file).planned()["memory_gb_per_s"] == pytest.approx(rate / 2, rel=0.05)


def matrix(folder: Path, variants: list[Variant], classes: Sequence[str] = (), **more: Any) -> MatrixStudy:
    return MatrixStudy(
        folder / "study", variants=variants, classes=classes, run_time_s=0.1, options=TWICE, **more
    ).run()


def test_a_matrix_sets_each_class_beside_each_and_divides_by_its_time_alone(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    times = {"stream alone": 2.0, "dense alone": 1.0, "stream beside dense": 3.0, "dense beside stream": 4.0}
    runs = four_cpus(lambda name: times.get(name, 6.0))
    study = matrix(tmp_path, variants, ["stream", "dense", "stream"])
    assert study.classes == ("stream", "dense")
    slowdowns = {pair: p.slowdown.ratio for pair, p in study.cells.items()}
    assert slowdowns == pytest.approx(
        {("stream", "stream"): 3, ("stream", "dense"): 1.5, ("dense", "stream"): 4, ("dense", "dense"): 6}
    )
    assert [line.split() for line in study.table.splitlines()][1:] == [
        ["stream", "3.000", "1.500", "-"],
        ["dense", "4.000", "6.000", "-"],
    ]
    slowdown_records = [r for r in study.records if r.metric == "slowdown"]
    assert {(r.conditions["class"], r.conditions["neighbour"]) for r in slowdown_records} == study.cells.keys()
    for group in runs.groups:
        alone, *pairs = group
        assert [program_of(alone, "measured", r).cpus for r in (0, 1)] == [((0,),), ((1,),)]
        for cell in pairs:
            assert cell.measured == ("measured",)
            for repetition, (measured_cpu, neighbour_cpu) in enumerate(((0, 1), (1, 0))):
                measured = program_of(cell, "measured", repetition)
                neighbour = program_of(cell, "neighbour", repetition)
                assert (measured.cpus, neighbour.cpus) == (((measured_cpu,),), ((neighbour_cpu,),))
                assert (measured.start_s, neighbour.start_s) == ((LEAD_S,), (0.0,))  # the neighbour starts first
                assert measured.file is not None
                assert neighbour.file is not None
                measured_plan, neighbour_plan = (
                    read_program(measured.file).planned(),
                    read_program(neighbour.file).planned(),
                )
                assert measured_plan["run_time_s"] == pytest.approx(0.1, rel=0.1)
                assert neighbour_plan["run_time_s"] > 5 * measured_plan["run_time_s"]


def test_programs_of_a_matrix_call_kernels_of_their_class_alone(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    runs = four_cpus(lambda _: 1.0)
    matrix(tmp_path, variants, ["stream@memory", "integer"], cpus=(2, 3))
    for group, kind in zip(runs.groups, ("stream", "integer"), strict=True):
        measured = program_of(group[0], "measured")
        assert measured.cpus == ((2,),)
        assert measured.file is not None
        part_variants = [p.variant for p in read_program(measured.file).parts]
        assert {v.kind for v in part_variants} == {kind}
        assert {v.threads for v in part_variants} == {1}
        if kind == "stream":
            assert {v.served_by for v in part_variants} == {"memory"}


def test_a_matrix_without_classes_has_every_kind_that_memory_serves(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    four_cpus(lambda _: 1.0)
    kinds = {v.kind for v in variants if v.threads == 1 and v.served_by == "memory"}
    study = matrix(tmp_path, variants)
    assert study.classes == tuple(f"{k}@memory" for k in MEMORY_BOUND if k in kinds)
    cache_variants = [v for v in variants if v.served_by != "memory"]
    with pytest.raises(UsageError, match="no sequential variant served by memory; name classes"):
        matrix(tmp_path / "near", cache_variants)
    with pytest.raises(UsageError, match=r"found 'spiral'; allowed: kernels and kinds \(.*stream.*also with @LEVEL"):
        matrix(tmp_path / "unknown", variants, ["stream", "spiral"])


def test_a_class_is_a_kind_or_a_kernel_at_a_level(variants: list[Variant]) -> None:
    v = variants[0]
    assert kernel_class(v.kind)(v)
    assert kernel_class(v.kernel)(v)
    assert kernel_class(f"{v.kind}@{v.served_by}")(v)
    assert not kernel_class(f"{v.kind}@{'L1' if v.served_by != 'L1' else 'memory'}")(v)
    assert not kernel_class("no such kind")(v)
    with pytest.raises(UsageError, match="found 'stream@L9'; allowed levels: L1, L2, L3, memory"):
        kernel_class("stream@L9")


@pytest.fixture(scope="module")
def reach(variants: list[Variant]) -> tuple[float, float]:
    """Return the lowest and highest memory rate of a program of these variants, in GB/s."""
    rate_range = explain(variants, TargetProfile(run_time_s=0.5, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    assert rate_range is not None
    return rate_range


def between(reach: tuple[float, float], share: float) -> float:
    return float(f"{reach[0] + share * (reach[1] - reach[0]):.4g}")


def curve(folder: Path, variants: list[Variant], **more: Any) -> CurveStudy:
    parameters = {"neighbour_run_time_s": 0.5, "outlasts": 3, "options": TWICE, **more}
    return CurveStudy(folder / "study", work=["true"], variants=variants, **parameters).run()


def beside(rate: float, held: bool = False) -> str:
    return f"beside {rate:g} GB/s{' held out' if held else ''}"


def test_a_curve_is_checked_with_neighbours_of_other_kernels_at_rates_that_it_does_not_have(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    low, middle, high = (between(reach, share) for share in (0.2, 0.4, 0.6))
    times = {"alone": 2.0, beside(low): 3.0, beside(high): 5.0, beside(middle, held=True): 4.5}
    runs = four_cpus(times.__getitem__)
    study = curve(tmp_path, variants, rates_gb_per_s=(high, low), held_out_gb_per_s=[middle])

    assert [(p.x, p.label) for p in study.points] == [(low, f"{low:g} GB/s"), (high, f"{high:g} GB/s")]
    assert [p.slowdown.ratio for p in study.points] == [1.5, 2.5]
    assert (study.predict(0), study.predict(low), study.predict(high)) == pytest.approx((1, 1.5, 2.5))
    with pytest.raises(UsageError, match=f"rate: found 99.*measured range is 0 to {high:g}"):
        study.predict(99)

    (check,) = study.predictions
    assert (check.measured.label, check.measured.x, check.measured.slowdown.ratio) == (
        f"{middle:g} GB/s held out",
        middle,
        2.25,
    )
    assert check.predicted == study.predict(middle)
    assert 1.5 < check.predicted < 2.5
    assert check.error_points == pytest.approx(100 * (2.25 - check.predicted))
    head, *rows = study.table.splitlines()
    assert head.split("  ")[0] == "beside" and head.split()[1:] == [
        "slowdown",
        "95",
        "%",
        "predicted",
        "off",
        "by",
        "points",
        "flags",
    ]
    assert [row.split() for row in rows] == [
        [f"{low:g}", "GB/s", "1.500", "none", "below", "4", "runs", "-"],
        [f"{high:g}", "GB/s", "2.500", "none", "below", "4", "runs", "-"],
        [
            *(f"{middle:g}", "GB/s", "held", "out", "2.250", "none", "below", "4", "runs"),
            *(f"{check.predicted:.3f}", f"{check.error_points:.1f}", "-"),
        ],
    ]

    (gap,) = [r for r in study.records if r.metric == "prediction_gap"]
    assert gap.value == pytest.approx(2.25 - check.predicted)
    assert gap.conditions == {
        "study": "interference_curve",
        "cpus": "0-3",
        "clock": "wall",
        "neighbour": f"{middle:g} GB/s held out",
        "neighbour_rate": middle * 1e9,
        "predicted": check.predicted,
        "measured": 2.25,
    }
    conditions = [r.conditions for r in study.records if r.metric == "slowdown"]
    assert [(c["neighbour_rate"], c["held_out"], c["neighbour"], c["neighbours"]) for c in conditions] == [
        (low * 1e9, False, f"{low:g} GB/s", 1),
        (high * 1e9, False, f"{high:g} GB/s", 1),
        (middle * 1e9, True, f"{middle:g} GB/s held out", 1),
    ]

    (group,) = runs.groups
    assert [c.name for c in group] == list(times)
    for cell in group:
        measured = program_of(cell, "measured")
        assert (cell.measured, measured.cpus) == (("measured",), ((0,),))
        assert Path(measured.command[0]).name == "true"
        if cell.name == "alone":
            assert (len(cell.scenarios[0].programs), cell.scenarios[0].name) == (1, "curve: alone")
            continue
        assert cell.scenarios[0].name == f"curve: {cell.name}"
        neighbour = program_of(cell, "neighbour")
        assert (measured.start_s, neighbour.start_s, neighbour.cpus) == ((LEAD_S,), (0.0,), ((1,),))
        assert neighbour.file is not None
        planned = read_program(neighbour.file).planned()
        assert planned["run_time_s"] == pytest.approx(3 * 0.5, rel=0.15)
    # The neighbour that checks the curve excludes half of the kernels.
    file = program_of(group[-1], "neighbour").file
    assert file is not None
    profile = read_program(file).profile
    kernels = {v.kernel for v in variants if v.threads == 1}
    assert len(profile.without) == len(kernels) // 2
    assert kernels > set(profile.without)
    assert {p.variant.kernel for p in read_program(file).parts}.isdisjoint(profile.without)
    assert profile.seed == TWICE.seed + 1
    assert profile.name == f"{middle:g} GB per s held out"


def test_a_curve_without_wishes_has_six_rates_and_checks_two_between_them(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    four_cpus(lambda name: 1.0 if name == "alone" else 2.0)
    study = curve(tmp_path, variants)
    rates = [p.x for p in study.points]
    assert len(rates) == 6 and rates == sorted(rates)
    middles = [(a + b) / 2 for a, b in itertools.pairwise(rates)]
    assert [h.measured.x for h in study.predictions] == pytest.approx([middles[1], middles[4]], rel=1e-3)


def test_programs_that_a_user_names_check_a_curve_at_the_rate_of_all_copies(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    runs = four_cpus(lambda name: 1.0 if name == "alone" else 1.5)
    rates = [2 * between(reach, share) for share in (0.1, 0.6)]
    files = {}
    for name, share in (("mine", 0.3), ("fast", 0.8)):
        program = synthesize(
            variants, TargetProfile(run_time_s=0.5, metrics={"memory_gb_per_s": between(reach, share)})
        )
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(dump_program(program))
    rate_by_name = {name: read_program(file).planned()["memory_gb_per_s"] for name, file in files.items()}
    study = curve(
        tmp_path, variants, rates_gb_per_s=rates, held_out_gb_per_s=(), held_out=files, neighbours=2, cpus=(3, 1, 2)
    )
    (check,) = study.predictions
    assert (check.measured.label, check.measured.x) == ("mine", pytest.approx(2 * rate_by_name["mine"]))
    (absence,) = study.absences
    assert (absence.metric, absence.kind, absence.conditions["neighbour"]) == ("prediction_gap", "absent", "fast")
    assert absence.reason == f"fast: {2 * rate_by_name['fast']:.3g} GB/s is outside the range of the curve"
    assert study.table.splitlines()[-1] == f"absent: prediction_gap: {absence.reason}"
    conditions = {r.conditions["neighbour"]: r.conditions for r in study.records if r.metric == "slowdown"}
    assert (conditions["mine"]["held_out"], conditions["mine"]["neighbours"]) == (True, 2)
    for cell in runs.groups[0][1:]:
        assert program_of(cell, "measured").cpus == ((3,),)
        assert program_of(cell, "neighbour").cpus == ((1,), (2,))
    assert program_of(runs.groups[0][-2], "neighbour").file == files["mine"].resolve()


def test_a_neighbour_that_cannot_be_made_is_absent_and_the_others_go_on(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    four_cpus(lambda name: 1.0 if name == "alone" else 1.5)
    rates = [between(reach, 0.2), between(reach, 0.4), 50 * reach[1]]
    study = curve(tmp_path, variants, rates_gb_per_s=rates, held_out_gb_per_s=())
    assert [p.x for p in study.points] == rates[:2]
    (absence,) = study.absences
    assert (absence.metric, absence.kind) == ("slowdown", "error")
    assert (absence.conditions["neighbour_rate"], absence.conditions["held_out"]) == (rates[2] * 1e9, False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"neighbours": 0}, "neighbours: found 0; allowed: 1 to 3, one per CPU"),
        ({"neighbours": 4}, "neighbours: found 4; allowed: 1 to 3, one per CPU"),
        ({"outlasts": 0.5}, "outlasts: found 0.5; allowed: 1 or more"),
        ({"rates_gb_per_s": [2.0, 2.0]}, "rates: found 1; a curve needs at least 2"),
        ({"held_out_gb_per_s": [0.0]}, "held_out_gb_per_s: found 0; allowed: above 0, at most 3"),
        ({"held_out_gb_per_s": [3.5]}, "held_out_gb_per_s: found 3.5; allowed: above 0, at most 3"),
        ({"held_out": {"mine": Path("/none.json")}}, "held_out: mine: found /none.json; no such file"),
    ],
)
def test_wishes_that_make_no_curve_are_refused_before_a_folder_is_made(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    four_cpus(lambda _: 1.0)
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        curve(tmp_path, variants, **{"rates_gb_per_s": [2.0, 3.0], **wrong})
    assert not (tmp_path / "study").exists()


def test_studies_of_neighbours_need_two_cpus(four_cpus: Any, variants: list[Variant], tmp_path: Path) -> None:
    four_cpus(lambda _: 1.0)
    with pytest.raises(AbsentError, match=r"^interference_curve: needs two CPUs; available: 2$"):
        curve(tmp_path, variants, cpus=(2,))
    with pytest.raises(AbsentError, match=r"^interference_matrix: needs two CPUs; available: 2$"):
        matrix(tmp_path, variants, cpus=(2,))


def test_a_curve_of_which_no_run_counts_is_an_error_that_names_the_folder(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    runs = four_cpus(lambda _: 1.0)
    runs.reason = "program measured, copy 0: exit status 1"
    with pytest.raises(MeshmarkError, match="no valid run: program measured, copy 0: exit status 1") as error:
        curve(tmp_path, variants, rates_gb_per_s=[between(reach, s) for s in (0.2, 0.6)], held_out_gb_per_s=())
    assert str(tmp_path / "study") in error.value.hint


def test_a_study_keeps_what_it_was_asked(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    four_cpus(lambda _: 1.0)
    rates = [between(reach, s) for s in (0.2, 0.6)]
    curve(tmp_path, variants, rates_gb_per_s=rates, held_out_gb_per_s=())
    parameters = json.loads((tmp_path / "study" / "study.json").read_text())
    assert parameters["study"] == "interference_curve"
    assert {
        "work": ["true"],
        "neighbours": 1,
        "rates_gb_per_s": rates,
        "held_out_gb_per_s": [],
        "held_out": {},
        "neighbour_run_time_s": 0.5,
        "outlasts": 3,
    }.items() <= parameters.items()
    matrix(tmp_path / "other", variants, ["stream"])
    parameters = json.loads((tmp_path / "other" / "study" / "study.json").read_text())
    assert {"study": "interference_matrix", "classes": ["stream"], "run_time_s": 0.1}.items() <= parameters.items()


def test_a_pair_of_which_no_run_counts_is_absent_in_a_matrix(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    runs = four_cpus(lambda _: 1.0)
    runs.reason, runs.fails = "it ended early", {"stream beside integer"}
    study = matrix(tmp_path, variants, ["stream", "integer"])
    assert ("stream", "integer") not in study.cells and len(study.cells) == 3
    assert study.table.splitlines()[0].split() == ["measured", "\\", "beside", "stream", "integer", "flags"]
    assert study.table.splitlines()[1].split() == ["stream", "1.000", "absent", "-"]
    (absence,) = study.absences
    assert (absence.reason, absence.conditions["class"], absence.conditions["neighbour"]) == (
        "it ended early",
        "stream",
        "integer",
    )
    assert study.excluded == "2 of 12 runs are excluded: stream beside integer: it ended early"


def test_programs_of_a_matrix_may_be_of_one_kernel_alone(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    runs = four_cpus(lambda _: 1.0)
    kernel = next(v.kernel for v in variants if v.threads == 1 and v.served_by == "memory")
    matrix(tmp_path, variants, [kernel])
    file = program_of(runs.groups[0][0], "measured").file
    assert file is not None
    profile = read_program(file).profile
    assert (profile.kernels, profile.least_kernels, profile.most_share, profile.name) == ((kernel,), 1, 1.0, kernel)
    assert profile.memory_mib == memory_mib(variants)


def test_the_seed_chooses_the_kernels_of_the_neighbours_that_check_a_curve(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    def without(folder: str, seed: int) -> tuple[str, ...]:
        runs = four_cpus(lambda _: 1.0)
        curve(
            tmp_path / folder,
            variants,
            rates_gb_per_s=[between(reach, share) for share in (0.2, 0.6)],
            held_out_gb_per_s=[between(reach, 0.4)],
            options=StudyOptions(repetitions=2, rounds=0, seed=seed),
        )
        file = program_of(runs.groups[0][-1], "neighbour").file
        assert file is not None
        return read_program(file).profile.without

    assert without("first", 1) == without("second", 1) != without("third", 2)


def test_held_out_neighbours_alone_make_no_curve(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float]
) -> None:
    low, middle, high = (between(reach, share) for share in (0.2, 0.4, 0.6))
    runs = four_cpus(lambda name: 1.0 if name == "alone" else 1.5)
    runs.reason, runs.fails = "it ended early", {beside(low), beside(high)}
    with pytest.raises(MeshmarkError, match=r"^interference_curve: no run next to a neighbour is valid$") as error:
        curve(tmp_path, variants, rates_gb_per_s=(low, high), held_out_gb_per_s=[middle])
    assert str(tmp_path / "study") in error.value.hint
    # The measured records are kept.
    records = [
        json.loads(line) for file in (tmp_path / "study").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert f"{middle:g} GB/s held out" in {k.get("conditions", {}).get("neighbour") for k in records}


@pytest.mark.parametrize(("rates", "checked"), [(2, [0]), (3, [0, 1]), (4, [1, 2])])
def test_a_curve_is_checked_a_third_of_the_way_and_at_its_end(
    four_cpus: Any, variants: list[Variant], tmp_path: Path, reach: tuple[float, float], rates: int, checked: list[int]
) -> None:
    four_cpus(lambda name: 1.0 if name == "alone" else 2.0)
    curve_rates = [between(reach, 0.1 + 0.1 * i) for i in range(rates)]
    study = curve(tmp_path, variants, rates_gb_per_s=curve_rates)
    middles = [(a + b) / 2 for a, b in itertools.pairwise(curve_rates)]
    assert [h.measured.x for h in study.predictions] == pytest.approx([middles[i] for i in checked], rel=1e-3)


def test_variants_of_several_threads_are_no_programs_of_a_matrix(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    runs = four_cpus(lambda _: 1.0)
    sequential = [v for v in variants if v.threads == 1 and v.kind in {"stream", "dense"}]
    selection = sequential + [v for v in variants if v.threads > 1 and v.kind in {"solver", "compute"}]
    study = matrix(tmp_path / "all", selection)
    assert study.classes == ("stream@memory", "dense@memory")
    file = program_of(runs.groups[1][0], "measured").file
    assert file is not None
    kernels = {v.kernel for v in sequential if v.kind == "dense" and v.served_by == "memory"}
    assert read_program(file).profile.kernels == tuple(sorted(kernels))
    with pytest.raises(UsageError, match=r"^classes: found 'solver'; allowed.* kernels and kinds \(dense, stream\)"):
        matrix(tmp_path / "unknown", selection, ["stream", "solver"])
    assert not (tmp_path / "unknown" / "study").exists()
    parallel = [v for v in selection if v.threads > 1]
    with pytest.raises(UsageError, match=r"^classes: .*no sequential variant served by memory"):
        matrix(tmp_path / "parallel", parallel)


def test_a_neighbour_that_checks_a_curve_has_all_kernels_if_half_of_them_do_not_reach_its_rate(
    four_cpus: Any, variants: list[Variant], tmp_path: Path
) -> None:
    runs = four_cpus(lambda name: 1.0 if name == "alone" else 1.5)
    kernel = next(v.kernel for v in variants if v.threads == 1 and v.served_by == "memory" and v.kind == "stream")
    cached = [v for v in variants if v.kind == "compute" and v.served_by != "memory"]
    selection = [v for v in variants if v.kernel == kernel] + cached
    rate_range = explain(selection, TargetProfile(run_time_s=0.5, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    assert rate_range is not None
    low, middle, high = (between(rate_range, share) for share in (0.5, 0.7, 0.9))
    without = set[tuple[str, ...]]()
    for seed in (1, 2):
        options = StudyOptions(repetitions=2, rounds=0, seed=seed)
        curve(tmp_path / f"{seed}", selection, rates_gb_per_s=(low, high), held_out_gb_per_s=[middle], options=options)
        file = program_of(runs.groups[0][-1], "neighbour").file
        assert file is not None
        program = read_program(file)
        assert program.planned()["memory_gb_per_s"] == pytest.approx(middle, rel=0.05)
        without.add(program.profile.without)
    assert () in without
    assert all(kernel not in kernels for kernels in without)


def test_two_of_the_largest_arrays_fit_a_program(variants: list[Variant]) -> None:
    def of(*mib: int) -> list[Variant]:
        return [dataclasses.replace(variants[0], volume_bytes=n << 20) for n in mib]

    assert memory_mib(()) == memory_mib(of(1, 128)) == 512
    assert memory_mib(of(8, 512)) == 2 * 512 + 64 > 1025
    assert memory_mib(of(256)) == 2 * 256 + 64
