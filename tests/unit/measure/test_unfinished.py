"""An interrupted `meshmark measure` keeps its results, and `--resume` continues it once."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.runs.plan import SurveyPlan, SurveyStep
from meshmark.measure.runs.unfinished import KEPT, PartlyError, begin, newest
from meshmark.store.store import MEASURING, Store
from support.cli import start
from support.paths import FAKE_PROBE
from support.processes import nobody_with
from support.waiting import until

FAKE = FAKE_PROBE


class Home:
    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.data = folder / "data" / "meshmark"
        self.env = {
            "MESHMARK_PROBE": str(FAKE),
            "MESHMARK_COMM": str(folder / "none"),
            "FAKE_LOG": str(self.log),
            "XDG_DATA_HOME": str(folder / "data"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `meshmark measure` in a new session, as a terminal does."""
        return start("measure", *words, env=self.env, start_new_session=True)

    def measure(self, *words: str) -> tuple[int, list[str], str]:
        with self.start(*words) as child:
            output, messages = child.communicate(timeout=120)
        return child.returncode, output.splitlines(), messages

    def cut_off(self, *words: str) -> None:
        """Start a measurement and kill it after some samples."""
        with self.start("fake", "--pause", "0.1", *words) as child:
            self.taken(3)
            os.killpg(child.pid, signal.SIGKILL)

    def taken(self, count: int) -> None:
        assert until(lambda: self.log.exists() and len(self.log.read_text().split()) >= count), "nothing is measured"

    def left(self) -> list[Path]:
        return sorted((self.data / "store" / ".measuring").glob("*"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.slow
def test_killed_at_random_moments_it_goes_on_and_measures_nothing_twice(home: Home) -> None:
    rng = random.Random(5)
    words = ["fake", "--pause", "0.05", "--json"]
    kills = 0
    while kills < 6:
        count = len(home.log.read_text().split()) if home.log.exists() else 0
        with home.start(*words) as child:
            home.taken(min(count + 1, 27))
            try:
                child.wait(rng.uniform(0, 0.3))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                kills += 1
        assert nobody_with(f"FAKE_LOG={home.log}"), "the probe dies with its parent"
        if not home.left():  # the measurement was complete, and was perhaps killed after it had reported that
            break
        words = ["--resume", "--json"]
    else:
        status, results, _ = home.measure(*words)
        assert status == 0 and len(results) == 4
    assert kills >= 3, "it was never killed in the middle"
    records = Store(home.data / "store").query()
    assert len(records) == 4 and all(len(r.samples) == 7 for r in records)
    # A sample that was taken but not yet written at the time of the kill is lost; only this sample is repeated.
    assert sum(Counter(home.log.read_text().split()).values()) <= 4 * 7 + kills
    assert not home.left()
    assert len(Store(home.data / "store").runs()) == 1


def test_an_interrupt_keeps_what_was_measured_and_says_so(home: Home) -> None:
    with home.start("fake", "--pause", "0.1") as child:
        home.taken(3)
        child.send_signal(signal.SIGINT)
        _, messages = child.communicate(timeout=60)
    assert (
        child.returncode == 130 and "resume with meshmark measure --resume" in messages and "Traceback" not in messages
    )
    status, results, messages = home.measure("fake", "--resume", "--json")
    assert status == 0 and len(results) == 4 and "resuming" in messages
    assert len(home.log.read_text().split()) <= 4 * 7 + 1 and not home.left()


def test_without_a_store_nothing_is_kept_and_it_says_so(home: Home) -> None:
    with home.start("fake", "--pause", "0.1", "--no-store") as child:
        home.taken(3)
        child.send_signal(signal.SIGINT)
        _, messages = child.communicate(timeout=60)
    assert child.returncode == 130 and "nothing is stored" in messages and "--resume" not in messages
    assert not home.data.exists()


def test_what_failed_after_some_points_goes_on_and_what_failed_at_once_does_not(home: Home) -> None:
    status, results, messages = home.measure("fake", "--fault", "crash_once", "--json")
    assert status == 1 and len(results) == 1 and "SIGSEGV" in messages and "meshmark measure --resume" in messages
    assert len(home.left()) == 1
    status, results, messages = home.measure("--resume", "--json")
    assert status == 0 and len(results) == 4, messages
    assert not home.left()
    for fault, expected in (("usage", 2), ("absent", 77)):
        status, results, messages = home.measure("fake", "--fault", fault)
        assert status == expected and not results and "--resume" not in messages
        assert not home.left()


def test_the_store_and_the_words_are_those_of_the_first_time(home: Home, tmp_path: Path) -> None:
    home.cut_off("--store", str(tmp_path / "mine"), "--points", "2")
    store = Store(tmp_path / "mine")
    assert not store.query() and not [problem for _, problem in store.verify() if problem], (
        "what is cut off is no data yet"
    )
    assert home.measure("--resume")[0] == 2, "in another store"
    with home.start("--resume", "--store", str(tmp_path / "mine")) as child:
        home.taken(6)
        child.send_signal(signal.SIGINT)
        _, messages = child.communicate(timeout=60)
    assert f"resume with meshmark measure --resume --store {tmp_path / 'mine'}" in messages
    status, results, _ = home.measure("--resume", "--json", "--store", str(tmp_path / "mine"))
    assert status == 0 and len(results) == 2
    assert len(Store(tmp_path / "mine").query()) == 2 and not (home.data / "store").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--resume",), "found no interrupted measurement on "),
        (("fake", "--resume"), "found no interrupted measurement of fake on "),
        (("fake", "--resume", "--points", "2"), "--resume: found with other options"),
        (("fake", "--resume", "earlier.jsonl"), "--resume: found with other options"),
        (("fake", "--resume", "--no-store"), "--resume: found with other options"),
        (("bogus", "--resume"), "bogus"),
    ],
)
def test_a_bad_word_is_one_line(home: Home, words: tuple[str, ...], says: str) -> None:
    status, results, messages = home.measure(*words)
    assert status == 2 and not results and says in messages and "Traceback" not in messages
    assert len([x for x in messages.splitlines() if x.startswith("meshmark: error")]) == 1


@pytest.mark.parametrize("spoilt", ["plan.json", "run.json"])
def test_a_spoilt_folder_is_one_line(home: Home, spoilt: str) -> None:
    home.cut_off()
    (home.left()[0] / spoilt).write_text("{")
    status, results, messages = home.measure("--resume")
    assert status == 1 and not results and spoilt in messages and "Traceback" not in messages


def test_nobody_goes_on_with_what_is_being_measured(home: Home) -> None:
    with home.start("fake", "--pause", "0.1") as child:
        home.taken(3)
        status, _, messages = home.measure("--resume")
        assert status == 2 and "found no interrupted measurement on " in messages
        assert child.wait(60) == 0
    assert not home.left()


def test_the_newest_of_an_instrument_is_taken_and_old_ones_go(tmp_path: Path) -> None:
    for i in range(2 * KEPT):
        plan = SurveyPlan("measure", (SurveyStep(f"s{i}", "odd" if i % 2 else "even", (), 1.0),))
        with pytest.raises(KeyboardInterrupt), begin(tmp_path, f"r{i:02d}", plan, "n1") as run:
            os.utime(run.folder / "run.json", (i, i))
            raise KeyboardInterrupt
    assert sorted(p.name for p in (tmp_path / MEASURING).iterdir()) == [f"r{i:02d}" for i in range(KEPT, 2 * KEPT)]
    with newest(tmp_path, "n1", "even") as first, newest(tmp_path, "n1") as second:
        assert (first.run_id, second.run_id) == (f"r{2 * KEPT - 2:02d}", f"r{2 * KEPT - 1:02d}")
        with newest(tmp_path, "n1") as third:
            assert third.run_id == f"r{2 * KEPT - 3:02d}", "the other two are being measured"
    assert not any(run.folder.exists() for run in (first, second, third)), "they are complete"
    with (
        pytest.raises(UsageError, match=r"interrupted measurement on n2 in .*; found some of other machines: n1$"),
        newest(tmp_path, "n2"),
    ):
        pass
    with pytest.raises(UsageError, match="of neither"), newest(tmp_path, "n1", "neither"):
        pass


def test_only_what_can_be_resumed_is_kept(tmp_path: Path) -> None:
    plan = SurveyPlan("measure", (SurveyStep("s", "fake", (), 1.0),))
    for number, (error, is_kept) in enumerate(((PartlyError("x"), True), (MeshmarkError("x"), False))):
        with pytest.raises(MeshmarkError), begin(tmp_path, f"r{number}", plan, "n1") as run:
            raise error
        assert run.folder.exists() == is_kept


def test_without_locks_it_measures_and_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", none)
    plan = SurveyPlan("measure", (SurveyStep("s", "fake", (), 1.0),))
    for i in range(KEPT + 2):
        with pytest.raises(KeyboardInterrupt), begin(tmp_path, f"r{i}", plan, "n1"):
            raise KeyboardInterrupt
    assert len(list((tmp_path / MEASURING).iterdir())) == KEPT + 2, "nothing that may be in use is removed"
    with pytest.raises(MeshmarkError, match="no locks"), newest(tmp_path, "n1"):
        pass


def test_many_at_once_do_not_meet(tmp_path: Path) -> None:
    plan = SurveyPlan("measure", (SurveyStep("s", "fake", (), 1.0),))

    def one(i: int) -> None:
        for j in range(20):
            with begin(tmp_path, f"r{i}-{j}", plan, "n1"):
                pass

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(one, range(8)))
    assert not list((tmp_path / MEASURING).iterdir())
