"""Changes between two recordings have an interval."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from meshmark.errors import MeshmarkError
from meshmark.watch.difference import RecordingDifference, RecordingSide, UseChange, compare, table
from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.recording import RecordingFile
from support.made_recordings import frames, header, record, said


def side(name: str, uses: Sequence[Sequence[float | None]], of: Header | None = None) -> RecordingSide:
    return RecordingSide(name, of or header(), len(uses), frames(uses))


def ar(rng: np.random.Generator, ticks: int, memory: float) -> list[float]:
    """Return autocorrelated noise: each tick is `memory` times the previous one plus new noise."""
    values, noise = [], rng.normal() / np.sqrt(1 - memory**2)
    for _ in range(ticks):
        values.append(0.5 + 0.02 * noise)
        noise = memory * noise + rng.normal()
    return values


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_interval_covers_no_change_as_often_as_it_says(memory: float) -> None:
    rng = np.random.default_rng(7)
    n = 400
    a, b = ([ar(rng, 400, memory) for _ in range(n)] for _ in range(2))
    wide_header = header(n)
    difference = compare(side("a", np.array(a).T.tolist(), wide_header), side("b", np.array(b).T.tolist(), wide_header))
    quiet = sum(not c.certain for c in difference.changes["cpu"]) / n
    # 0.95 (0.94 for batches of only eight correlation times) within four deviations of this count; plain scatter has
    # 0.5.
    assert 0.885 < quiet < 0.985


def test_a_change_is_found_with_its_sign_and_size() -> None:
    rng = np.random.default_rng(3)
    before = [[0.2, 0.5, None, 0.3] for _ in range(100)]
    after = [[0.2 + float(rng.normal(0, 0.01)), 0.25, 0.1, 0.3] for _ in range(60)]
    c = compare(side("a", before), side("b", after)).changes["cpu"]
    assert not c[0].certain and c[0].low is not None and c[0].high is not None and c[0].low < 0 < c[0].high
    assert c[1].certain and c[1].change == pytest.approx(-0.25)
    assert c[2].change is None and c[2].why == "not known at this tick (a)"
    assert [(change.component_class, change.index, change.name) for change in c] == [
        ("cpu", i, f"CPU {i}") for i in range(4)
    ]
    assert not c[3].certain and c[3].change == pytest.approx(
        0
    )  # values that are equal to the last digit have no change
    memory = compare(side("a", before), side("b", after)).changes["memory"]
    assert memory[0].why == "no counters here (a)"


def test_a_frame_counts_by_its_length() -> None:
    all_frames = frames([[0.0] * 4, [1.0] * 4] * 20)
    for frame in all_frames[1::2]:
        frame.window_s = 0.3
    c = compare(side("a", [[0.5] * 4] * 20), RecordingSide("b", header(), 40, all_frames)).changes["cpu"][0]
    assert c.after == pytest.approx(0.75)


def test_too_few_frames_have_a_change_and_no_interval() -> None:
    c = compare(side("a", [[0.1] * 4] * 7), side("b", [[0.9] * 4] * 70)).changes["cpu"][0]
    assert c.change == pytest.approx(0.8) and c.low is None and not c.certain and "each recording needs 8" in c.why
    assert (c.component_class, c.index, c.name) == ("cpu", 0, "CPU 0")
    with pytest.raises(MeshmarkError, match="b: the recording has no frames"):
        compare(side("a", [[0.1] * 4]), side("b", []))


def test_the_json_has_both_sides_and_every_change_with_what_is_not_known() -> None:
    change = UseChange("cpu", 3, "CPU 3", 0.25, 0.5000000123, 0.2, 0.3)
    assert change.to_json() == {
        "name": "CPU 3",
        "before": 0.25,
        "after": 0.5,
        "change": 0.25,
        "low": 0.2,
        "high": 0.3,
        "certain": True,
    }
    difference = compare(side("a", [[0.1, None, 0.3, 0.4]] * 20), side("b", [[0.9, 0.2, None, 0.4]] * 10)).to_json()
    assert difference["before"] == {
        "name": "a",
        "machine": header().machine,
        "started": header().started,
        "frames": 20,
        "seconds": pytest.approx(sum(f.window_s for f in frames([[0.1]] * 20))),
    }
    assert (difference["after"]["name"], difference["after"]["frames"]) == ("b", 10)
    unknown = {"change": None, "low": None, "high": None, "certain": False}
    assert difference["changes"]["cpu"][1:3] == [
        {"name": "CPU 1", "before": None, "after": 0.2, **unknown, "why": "not known at this tick (a)"},
        {"name": "CPU 2", "before": 0.3, "after": None, **unknown, "why": "not known at this tick (b)"},
    ]


def test_the_table_names_some_of_what_is_not_known_for_one_reason() -> None:
    sides = {"name": "a", "frames": 20}, {"name": "b", "frames": 10}
    changes = [UseChange("cpu", i, f"CPU {i}", why="not counted") for i in range(8)]
    assert list(table(RecordingDifference(*sides, {"cpu": changes})))[-1] == (
        "not known: CPU 0, CPU 1, CPU 2, CPU 3, CPU 4, CPU 5 and 2 more: not counted"
    )
    assert list(table(RecordingDifference(*sides, {"cpu": changes[:6]})))[-1] == (
        "not known: CPU 0, CPU 1, CPU 2, CPU 3, CPU 4, CPU 5: not counted"
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda h: header(8), "their CPUs: found 4 before and 8 after; they must be the same"),
        (
            lambda h: Header(
                h.source,
                h.machine,
                h.started,
                h.period_s,
                {**h.components, "memory": ({"name": "memory 1"},)},
                h.metrics,
            ),
            "their memory: found 'memory 0' before and 'memory 1' after; they must be the same",
        ),
    ],
)
def test_machines_that_differ_are_one_line(other: Callable[[Header], Header], words: str) -> None:
    with pytest.raises(MeshmarkError, match=words) as raised:
        compare(side("a", [[0.1] * 4] * 8), side("b", [[0.1] * 4] * 8, other(header())))
    assert "\n" not in str(raised.value)


def test_classes_coloured_otherwise_are_not_compared() -> None:
    difference = compare(side("a", [[0.1] * 4] * 9), side("b", [[0.1] * 4] * 9, header(use={"cpu": "cpu.user"})))
    assert difference.changes["cpu"][0].change is None
    assert difference.changes["cpu"][0].why == "the metric is cpu.busy before and cpu.user after"


def test_replay_against_is_a_table_or_one_json_object(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 0.02, (80, 2))
    a = record(tmp_path / "a.parquet", header(), frames([[0.2, 0.6, 0.5 + float(n), None] for n in noise[:, 0]]))
    b = record(tmp_path / "b.parquet", header(), frames([[0.3, 0.1, 0.5 + float(n), None] for n in noise[:, 1]]))
    status, out, _ = said("replay", str(b), "--against", str(a))
    lines = out.splitlines()
    assert status == 0 and lines[0] == "from a.parquet (80 frames) to b.parquet (80 frames)"
    assert [line.split("  ")[0] for line in lines[2:5]] == ["CPU 1", "CPU 0", "CPU 2"]
    assert lines[2].split()[2:5] == ["60.0", "10.0", "-50.0"] and lines[3].split()[4] == "+10.0"
    assert lines[4].endswith("inconclusive")
    assert lines[5:] == [
        "not known: CPU 3: not known at this tick (a.parquet)",
        "not known: memory 0: no counters here (a.parquet)",
    ]
    status, out, _ = said("replay", str(b), "--against", str(a), "--json")
    document = json.loads(out)
    assert status == 0 and document["type"] == "difference"
    assert document["changes"]["cpu"][1]["change"] == -0.5 and document["changes"]["cpu"][1]["certain"] is True
    assert (
        list(
            table(
                compare(
                    *(RecordingSide(p.name, RecordingFile(p).header, 80, RecordingFile(p).frames()) for p in (a, b))
                )
            )
        )
        == lines
    )


def test_the_interval_is_that_of_welch_over_ten_batches() -> None:
    rng = np.random.default_rng(11)
    first, second = rng.normal(0.3, 0.05, 40), rng.normal(0.5, 0.02, 63)
    c = compare(side("a", [[x] * 4 for x in first.tolist()]), side("b", [[x] * 4 for x in second.tolist()])).changes
    batches = [
        [float(np.mean([x for i, x in enumerate(samples) if i * 10 // len(samples) == b])) for b in range(10)]
        for samples in (first, second)
    ]
    means = [float(np.mean(samples)) for samples in (first, second)]
    welch = stats.ttest_ind(batches[1], batches[0], equal_var=False).confidence_interval(0.95)
    half = (welch.high - welch.low) / 2
    for change in c["cpu"]:
        assert (change.before, change.after) == pytest.approx(means)
        assert (change.low, change.high) == pytest.approx((means[1] - means[0] - half, means[1] - means[0] + half))


def test_a_change_smaller_than_rounding_is_none() -> None:
    assert UseChange("cpu", 0, "CPU 0", 0.1, 0.2, 2e-6, 0.2).certain
    assert UseChange("cpu", 0, "CPU 0", 0.2, 0.1, -0.2, -2e-6).certain
    assert not UseChange("cpu", 0, "CPU 0", 0.1, 0.2, 5e-7, 0.2).certain
    assert not UseChange("cpu", 0, "CPU 0", 0.2, 0.1, -0.2, -5e-7).certain
    assert not UseChange("cpu", 0, "CPU 0", 0.1, 0.2, -0.1, 0.2).certain
    assert not UseChange("cpu", 0, "CPU 0", 0.1, 0.2).certain
    assert UseChange("cpu", 0, "CPU 0", 0.1).change is None
    assert UseChange("cpu", 0, "CPU 0", after=0.1).change is None


def test_eight_frames_are_enough_for_an_interval_and_what_is_known_in_three_batches_is_not() -> None:
    uses: list[list[float | None]] = [[0.1 + 0.01 * i, 0.2, 0.3, 0.4] for i in range(8)]
    change = compare(side("a", uses), side("b", uses)).changes["cpu"][0]
    assert change.low is not None and change.high is not None
    assert change.change == pytest.approx(0)
    assert change.low == pytest.approx(-change.high)
    assert change.high > 0.01
    for frame in uses[6:]:
        frame[1] = None
    c = compare(side("a", uses), side("b", [[0.5] * 4] * 20)).changes["cpu"]
    assert c[0].low is not None
    assert [c[1].before, c[1].after] == pytest.approx([0.2, 0.5])
    assert (c[1].low, c[1].high) == (None, None)
    assert c[1].why == "too few frames for an interval: each recording needs 8"
    c = compare(side("b", [[0.5] * 4] * 20), side("a", uses)).changes["cpu"]
    assert c[0].low is not None and c[1].low is None


def test_what_is_not_known_at_some_ticks_is_the_mean_of_the_others() -> None:
    uses = [[0.2 if i % 2 else None, 0.4] for i in range(40)]
    c = compare(side("a", uses, header(2)), side("b", [[0.5, 0.5]] * 40, header(2))).changes["cpu"]
    assert c[0].certain
    assert [c[0].before, c[0].after] == pytest.approx([0.2, 0.5])


def test_frames_that_are_short_of_a_component_or_without_length_do_not_hide_the_others() -> None:
    all_frames = frames([[0.5] * 4] * 20)
    all_frames[3].values["cpu.busy"] = [1.0, 1.0]  # an incomplete frame
    c = compare(RecordingSide("a", header(), 20, all_frames), side("b", [[0.5] * 4] * 20)).changes["cpu"]
    assert c[0].before == pytest.approx(0.5)
    for frame in all_frames:
        frame.window_s = 0.0
    c = compare(RecordingSide("a", header(), 20, all_frames), side("b", [[0.5] * 4] * 20)).changes["cpu"]
    assert c[0].before == pytest.approx(0.5)


def test_a_recording_that_grows_is_read_up_to_the_frames_that_it_had() -> None:
    uses = [[0.25] * 4] * 20 + [[1.0] * 4] * 5
    difference = compare(RecordingSide("a", header(), 20, frames(uses)), side("b", [[0.5] * 4] * 10))
    assert difference.changes["cpu"][0].before == pytest.approx(0.25)
    assert (difference.before["frames"], difference.before["seconds"]) == (20, pytest.approx(2.0))
    assert compare(side("a", uses[:7]), side("b", uses)).before["seconds"] == pytest.approx(0.7)


def test_the_table_has_the_surest_and_largest_changes_first_and_links_by_name() -> None:
    sides = {"name": "a", "frames": 20}, {"name": "b", "frames": 10}
    changes = {
        "cpu": [
            UseChange("cpu", 0, "CPU 0", 0.5, 0.75, -0.1, 0.6),
            UseChange("cpu", 1, "CPU 1", 0.5, 0.625, 0.1, 0.15),
            UseChange("cpu", 2, "CPU 2", 0.5, 0.25, -0.26, -0.24),
            UseChange("cpu", 3, "CPU 3", 0.5, 0.50001, why="too few frames"),
        ],
        "link": [UseChange("link", 0, "0-1", 1.0, 0.0, -1.0, -1.0), UseChange("link", 1, "1-0", why="no counters")],
    }
    assert list(table(RecordingDifference(*sides, changes))) == [
        "from a (20 frames) to b (10 frames)",
        "component  before (%)  after (%)  change (points)  95 % interval",
        "link 0-1        100.0        0.0           -100.0  -100.0 to -100.0",
        "CPU 2            50.0       25.0            -25.0  -26.0 to -24.0",
        "CPU 1            50.0       62.5            +12.5  +10.0 to +15.0",
        "CPU 0            50.0       75.0            +25.0  -10.0 to +60.0  inconclusive",
        "CPU 3            50.0       50.0              0.0  too few frames",
        "not known: link 1-0: no counters",
    ]
    long = {"cpu": [UseChange("cpu", 0, "a CPU with a name", 0.5, 0.75, 0.2, 0.3)]}
    assert list(table(RecordingDifference(*sides, long)))[1:] == [
        "component          before (%)  after (%)  change (points)  95 % interval",
        "a CPU with a name        50.0       75.0            +25.0  +20.0 to +30.0",
    ]


def test_classes_that_one_recording_does_not_measure_name_the_reason_and_the_recording() -> None:
    plain = header()
    measured_header = Header(
        plain.source,
        plain.machine,
        plain.started,
        plain.period_s,
        plain.components,
        (*plain.metrics, FrameMetric(plain.use["memory"], "1", "busy", "counter")),
    )
    all_frames = frames([[0.1] * 4] * 10)
    for frame in all_frames:
        frame.values[plain.use["memory"]] = [0.5]
    measured, unmeasured = RecordingSide("a", measured_header, 10, all_frames), side("b", [[0.1] * 4] * 10)
    for pair in ((measured, unmeasured), (unmeasured, measured)):
        (memory,) = compare(*pair).changes["memory"]
        assert (memory.component_class, memory.index, memory.name) == ("memory", 0, "memory 0")
        assert (memory.before, memory.after, memory.why) == (None, None, "no counters here (b)")
    assert compare(measured, measured).changes["memory"][0].before == pytest.approx(0.5)
    assert list(compare(measured, measured).changes) == ["cpu", "memory"]  # classes without a component are left out


def test_the_json_of_a_difference_names_its_format_and_rounds_to_a_millionth() -> None:
    difference = RecordingDifference(
        {"name": "a"}, {"name": "b"}, {"cpu": [UseChange("cpu", 0, "CPU 0", 0.12345678, why="no")]}
    )
    assert difference.to_json() == {
        "type": "difference",
        "format": 1,
        "unit": "1",
        "before": {"name": "a"},
        "after": {"name": "b"},
        "changes": {
            "cpu": [
                dict.fromkeys(("after", "change", "low", "high"))
                | {"name": "CPU 0", "before": 0.123457, "certain": False, "why": "no"}
            ]
        },
    }


def machine(names: Mapping[str, Sequence[str | None]], **more: str) -> Header:
    """Return a host that measures the use of every class; a component whose name is None has no name."""
    components = {kind: tuple({"name": n} if n else {} for n in class_names) for kind, class_names in names.items()}
    metrics = tuple(FrameMetric(f"{kind}.busy", "1", "busy", "time") for kind in names)
    return Header("host", "test", "2026-01-01T00:00:00Z", 0.1, components, metrics, (), more)


def of_machine(
    name: str, names: Mapping[str, Sequence[str | None]], use: Callable[[int], float | None], count: int
) -> RecordingSide:
    """Return a recording in which all components have the same use, which `use` returns for each frame."""
    all_frames = [
        Frame(n, 0.1 * n, 0.1, {f"{kind}.busy": [use(n)] * len(class_names) for kind, class_names in names.items()})
        for n in range(count)
    ]
    return RecordingSide(name, machine(names), count, all_frames)


def test_classes_are_compared_in_one_order_and_components_without_a_name_are_numbered() -> None:
    names = {"io": ("disk",), "link": ("0-1", "1-0"), "memory": ("memory 0",), "cpu": (None, "CPU 1", None)}
    a, b = (of_machine(n, names, lambda _, u=u: u, 8) for n, u in (("a", 0.25), ("b", 0.75)))
    difference = compare(a, b)
    assert list(difference.changes) == ["cpu", "memory", "link", "io"]
    assert [c.name for c in difference.changes["cpu"]] == ["cpu 0", "CPU 1", "cpu 2"]
    for kind, changes in difference.changes.items():
        assert [c.component_class for c in changes] == [kind] * len(names[kind])
        assert [c.index for c in changes] == list(range(len(names[kind])))
        # All frames are equal, so the interval has no width.
        for c in changes:
            assert (c.before, c.after, c.low, c.high) == pytest.approx((0.25, 0.75, 0.5, 0.5))
            assert (c.certain, c.why) == (True, "")


@pytest.mark.parametrize(("kind", "title"), [("cpu", "CPUs"), ("memory", "memory"), ("link", "links"), ("io", "I/O")])
@pytest.mark.parametrize(
    ("after", "found"),
    [
        (("x",), "found 2 before and 1 after"),
        (("x", "y", "z"), "found 2 before and 3 after"),
        ((), "found 2 before and 0 after"),
        (("x", "z"), "found 'y' before and 'z' after"),
        (("y", "x"), "found 'x' before and 'y' after"),
        (("x", None), "found 'y' before and '1' after"),
    ],
)
def test_components_that_differ_are_named_with_their_class(
    kind: str, title: str, after: Sequence[str | None], found: str
) -> None:
    a = of_machine("a", {"cpu": ("CPU 0",), kind: ("x", "y")}, lambda _: 0.5, 8)
    b = of_machine("b", {"cpu": ("CPU 0",), kind: after}, lambda _: 0.5, 8)
    with pytest.raises(MeshmarkError, match=f"^replay --against: .* in their {re.escape(title)}: {found}"):
        compare(a, b)


def test_components_without_a_name_are_the_same_at_the_same_place() -> None:
    names = {"cpu": (None, None)}
    assert len(compare(*(of_machine(n, names, lambda _: 0.5, 8) for n in "ab")).changes["cpu"]) == 2


@pytest.mark.parametrize("count", [8, 9, 13, 19, 20, 21, 100])
def test_frames_are_split_into_batches_of_at_least_two_but_ten_batches_at_most(count: int) -> None:
    rng = np.random.default_rng(count)
    first, second = (rng.normal(0.3, 0.05, n) for n in (count, 40))
    (c,) = compare(
        *(of_machine("s", {"cpu": ("CPU 0",)}, lambda n, v=v: float(v[n]), len(v)) for v in (first, second))
    ).changes["cpu"]
    samples = []
    for values in (first, second):
        batches = min(10, len(values) // 2)
        samples.append(
            [np.mean([x for i, x in enumerate(values) if i * batches // len(values) == b]) for b in range(batches)]
        )
    welch = stats.ttest_ind(samples[1], samples[0], equal_var=False).confidence_interval(0.95)
    assert c.low is not None
    assert c.high is not None
    assert c.high - c.low == pytest.approx(welch.high - welch.low)
    assert (c.low + c.high) / 2 == pytest.approx(np.mean(second) - np.mean(first))


def test_ticks_at_which_a_component_is_not_known_are_in_no_batch() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0.3, 0.05, 40)
    names = {"cpu": ("CPU 0",)}
    # Values are unknown in the first three of ten batches and in half of the fourth.
    a = of_machine("a", names, lambda n: float(values[n]) if n >= 14 else None, 40)
    b = of_machine("b", names, lambda n: float(values[-n]), 40)
    (c,) = compare(a, b).changes["cpu"]
    batch_means = [values[14:16].mean(), *(values[i : i + 4].mean() for i in range(16, 40, 4))]
    every = [np.mean([values[-n] for n in range(i, i + 4)]) for i in range(0, 40, 4)]
    welch = stats.ttest_ind(every, batch_means, equal_var=False).confidence_interval(0.95)
    assert c.low is not None
    assert c.high is not None
    assert c.high - c.low == pytest.approx(welch.high - welch.low)
    assert c.before == pytest.approx(values[14:].mean())


def test_a_frame_without_length_weighs_nothing_beside_others() -> None:
    all_frames = frames([[0.25] * 4] * 20)
    all_frames[7].window_s = 0.0
    all_frames[7].values["cpu.busy"] = [1.0] * 4
    difference = compare(RecordingSide("a", header(), 20, all_frames), side("b", [[0.5] * 4] * 20))
    assert difference.changes["cpu"][0].before == pytest.approx(0.25, abs=1e-9)
    assert difference.before["seconds"] == pytest.approx(1.9)


def test_one_frame_has_a_mean_and_its_machine_and_start_are_kept() -> None:
    difference = compare(
        side("a", [[0.1] * 4], header(machine="old")), side("b", [[0.9] * 4] * 2, header(machine="new"))
    )
    assert [difference.changes["cpu"][3].before, difference.changes["cpu"][3].after] == pytest.approx([0.1, 0.9])
    assert [(s["machine"], s["frames"], s["seconds"]) for s in (difference.before, difference.after)] == [
        ("old", 1, 0.1),
        ("new", 2, 0.2),
    ]
    assert {s["started"] for s in (difference.before, difference.after)} == {"2026-01-01T00:00:00Z"}
    for pair in (("none", "b"), ("b", "none"), ("none", "none")):
        sides = {"none": side("none", []), "b": side("b", [[0.9] * 4])}
        with pytest.raises(MeshmarkError, match=r"^replay --against: none: the recording has no frames"):
            compare(*(sides[name] for name in pair))


def test_every_number_of_a_change_is_rounded_to_a_millionth() -> None:
    change = UseChange("cpu", 0, "CPU 0", 0.1234564, 0.9876546, 0.8641974, 0.8642006)
    assert change.to_json() == {
        "name": "CPU 0",
        "before": 0.123456,
        "after": 0.987655,
        "change": 0.864198,
        "low": 0.864197,
        "high": 0.864201,
        "certain": True,
    }


def test_what_is_not_known_is_grouped_by_reason_in_the_order_of_the_components() -> None:
    sides = {"name": "a", "frames": 20}, {"name": "b", "frames": 10}
    changes = {
        "cpu": [UseChange("cpu", i, f"CPU {i}", why="asleep" if i % 2 else "absent") for i in range(4)],
        "link": [UseChange("link", i, f"0-{i}", why="asleep") for i in range(5)],
    }
    assert list(table(RecordingDifference(*sides, changes)))[2:] == [
        "not known: CPU 0, CPU 2: absent",
        "not known: CPU 1, CPU 3, link 0-0, link 0-1, link 0-2, link 0-3 and 1 more: asleep",
    ]
    assert list(table(RecordingDifference(*sides, {}))) == [
        "from a (20 frames) to b (10 frames)",
        "component  before (%)  after (%)  change (points)  95 % interval",
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [(0.0004, "0.0"), (-0.0004, "0.0"), (0.0006, "+0.1"), (-0.0006, "-0.1"), (0.25, "+25.0"), (-1.0, "-100.0")],
)
def test_changes_are_shown_in_points_with_their_sign_unless_they_are_zero(change: float, text: str) -> None:
    sides = {"name": "a", "frames": 20}, {"name": "b", "frames": 10}
    shown = UseChange("cpu", 0, "CPU 0", 0.5, 0.5 + change, change, change)
    line = list(table(RecordingDifference(*sides, {"cpu": [shown]})))[2]
    assert line.split()[4:8] == [text, text, "to", text]


def test_what_is_not_known_or_does_not_vary_causes_no_warnings() -> None:
    never, once, same = (lambda _: None), (lambda n: 0.5 if n == 0 else None), (lambda _: 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for before in (never, once, same):
            for after in (never, once, same):
                uses = (before, after)
                (c,) = compare(*(of_machine("s", {"cpu": ("CPU 0",)}, use, 20) for use in uses)).changes["cpu"]
                assert (c.change is None) is (never in {before, after})
