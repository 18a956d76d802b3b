"""What changed between two recordings, with an interval."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from meshmark.errors import MeshmarkError
from meshmark.watch.difference import Change, Difference, Side, compare, table
from meshmark.watch.frames import Header
from meshmark.watch.recording import Recording
from support.made_recordings import frames, header, record, said


def side(name: str, uses: Sequence[Sequence[float | None]], of: Header | None = None) -> Side:
    return Side(name, of or header(), len(uses), frames(uses))


def ar(rng: np.random.Generator, ticks: int, memory: float) -> list[float]:
    """Noise that remembers: each tick is `memory` of the one before, and new."""
    made, now = [], rng.normal() / np.sqrt(1 - memory**2)
    for _ in range(ticks):
        made.append(0.5 + 0.02 * now)
        now = memory * now + rng.normal()
    return made


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_interval_covers_no_change_as_often_as_it_says(memory: float) -> None:
    rng = np.random.default_rng(7)
    n = 400
    a, b = ([ar(rng, 400, memory) for _ in range(n)] for _ in range(2))
    of = header(n)
    found = compare(side("a", np.array(a).T.tolist(), of), side("b", np.array(b).T.tolist(), of))
    quiet = sum(not c.certain for c in found.changes["cpu"]) / n
    # 0.95 (0.94 where batches are but eight memories long) with four deviations of this count; plain scatter has 0.5.
    assert 0.885 < quiet < 0.985


def test_a_change_is_found_with_its_sign_and_size() -> None:
    rng = np.random.default_rng(3)
    before = [[0.2, 0.5, None, 0.3] for _ in range(100)]
    after = [[0.2 + float(rng.normal(0, 0.01)), 0.25, 0.1, 0.3] for _ in range(60)]
    c = compare(side("a", before), side("b", after)).changes["cpu"]
    assert not c[0].certain and c[0].low is not None and c[0].high is not None and c[0].low < 0 < c[0].high
    assert c[1].certain and c[1].change == pytest.approx(-0.25)
    assert c[2].change is None and c[2].why == "not known at this tick (a)"
    assert not c[3].certain and c[3].change == pytest.approx(0)  # the same to the last digit is no change
    memory = compare(side("a", before), side("b", after)).changes["memory"]
    assert memory[0].why == "no counters here (a)"


def test_a_frame_counts_by_its_length() -> None:
    made = frames([[0.0] * 4, [1.0] * 4] * 20)
    for frame in made[1::2]:
        frame.window_s = 0.3
    c = compare(side("a", [[0.5] * 4] * 20), Side("b", header(), 40, made)).changes["cpu"][0]
    assert c.after == pytest.approx(0.75)


def test_too_few_frames_have_a_change_and_no_interval() -> None:
    c = compare(side("a", [[0.1] * 4] * 7), side("b", [[0.9] * 4] * 70)).changes["cpu"][0]
    assert c.change == pytest.approx(0.8) and c.low is None and not c.certain and "8 are needed" in c.why
    with pytest.raises(MeshmarkError, match="b: has no frame"):
        compare(side("a", [[0.1] * 4]), side("b", []))


def test_the_json_has_both_sides_and_every_change_with_what_is_not_known() -> None:
    one = Change("cpu", 3, "CPU 3", 0.25, 0.5000000123, 0.2, 0.3)
    assert one.to_json() == {
        "name": "CPU 3",
        "before": 0.25,
        "after": 0.5,
        "change": 0.25,
        "low": 0.2,
        "high": 0.3,
        "certain": True,
    }
    found = compare(side("a", [[0.1, None, 0.3, 0.4]] * 20), side("b", [[0.9, 0.2, None, 0.4]] * 10)).to_json()
    assert found["before"] == {
        "name": "a",
        "machine": header().machine,
        "started": header().started,
        "frames": 20,
        "seconds": pytest.approx(sum(f.window_s for f in frames([[0.1]] * 20))),
    }
    assert (found["after"]["name"], found["after"]["frames"]) == ("b", 10)
    unknown = {"change": None, "low": None, "high": None, "certain": False}
    assert found["changes"]["cpu"][1:3] == [
        {"name": "CPU 1", "before": None, "after": 0.2, **unknown, "why": "not known at this tick (a)"},
        {"name": "CPU 2", "before": 0.3, "after": None, **unknown, "why": "not known at this tick (b)"},
    ]


def test_the_table_names_some_of_what_is_not_known_for_one_reason() -> None:
    sides = {"name": "a", "frames": 20}, {"name": "b", "frames": 10}
    changes = [Change("cpu", i, f"CPU {i}", why="not counted") for i in range(8)]
    assert list(table(Difference(*sides, {"cpu": changes})))[-1] == (
        "not known: CPU 0, CPU 1, CPU 2, CPU 3, CPU 4, CPU 5 and 2 more: not counted"
    )
    assert list(table(Difference(*sides, {"cpu": changes[:6]})))[-1] == (
        "not known: CPU 0, CPU 1, CPU 2, CPU 3, CPU 4, CPU 5: not counted"
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda h: header(8), "their CPUs: found 4 before and 8 after"),
        (
            lambda h: Header(
                h.source,
                h.machine,
                h.started,
                h.period_s,
                {**h.components, "memory": ({"name": "memory 1"},)},
                h.metrics,
            ),
            "their memory: found 'memory 0' before and 'memory 1' after",
        ),
    ],
)
def test_machines_that_differ_are_one_line(other: Callable[[Header], Header], words: str) -> None:
    with pytest.raises(MeshmarkError, match=words) as why:
        compare(side("a", [[0.1] * 4] * 8), side("b", [[0.1] * 4] * 8, other(header())))
    assert "\n" not in str(why.value)


def test_classes_coloured_otherwise_are_not_compared() -> None:
    found = compare(side("a", [[0.1] * 4] * 9), side("b", [[0.1] * 4] * 9, header(use={"cpu": "cpu.user"})))
    assert found.changes["cpu"][0].change is None
    assert found.changes["cpu"][0].why == "it is cpu.busy before and cpu.user after"


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
    assert lines[4].endswith("not distinguishable")
    assert lines[5:] == [
        "not known: CPU 3: not known at this tick (a.parquet)",
        "not known: memory 0: no counters here (a.parquet)",
    ]
    status, out, _ = said("replay", str(b), "--against", str(a), "--json")
    found = json.loads(out)
    assert status == 0 and found["type"] == "difference"
    assert found["changes"]["cpu"][1]["change"] == -0.5 and found["changes"]["cpu"][1]["certain"] is True
    assert (
        list(table(compare(*(Side(p.name, Recording(p).header, 80, Recording(p).frames()) for p in (a, b))))) == lines
    )
