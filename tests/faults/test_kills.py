"""Commands that are killed at random moments leave no process, no torn line and no temporary file, and repeat nothing.

The moment is a share of the time that the undisturbed command takes on this machine at present. Ctrl-C goes to the
whole group, SIGTERM and SIGKILL to the command alone, as a terminal, a batch system and the kernel send them.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from given import SCENARIO, SPEC, write_results
from started import Ended, Place

from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.measure.runs.journal import read_journal
from meshmark.measure.runs.plan import SurveyPlan
from meshmark.store.record import MODE_SUFFIX, Record
from meshmark.store.run import Absence
from meshmark.store.session import whole_lines
from meshmark.store.store import MEASURING, Store
from meshmark.watch.recording import RecordingFile
from support.mpi_here import needed

Found = Counter[Any]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
# Conditions that distinguish results.
POINTS = ("kernel", "store", "footprint_bytes", "words", "links.bandwidth", "n", "program", "copy", "candidate")
ENOUGH = (
    "--budget",
    "60s",
    "--interval",
    "60",
)  # each point ends with its minimum number of samples, however busy the machine is
BASE = """name = "short"
[[step]]
instrument = "kernels"
options = { kernel = "triad,copy", volume = "L2", stride = "1", threads = "1", budget = "60s", interval = 60 }
[[step]]
instrument = "kernels"
options = { kernel = "daxpy", volume = "L2", stride = "1", threads = "1", budget = "60s", interval = 60 }
"""


def point_of(step: str, of: Record | Absence) -> tuple[str, ...]:
    return (step, *(f"{k} {of.conditions[k]}" for k in POINTS if k in of.conditions))


def stored(place: Place) -> Found:
    """Return the points in the store, which must be valid, and its runs.

    A busy host makes some points absent, which count, and some runs differ; a record of a mode does not count as a
    point.
    """
    store = Store(place.folder / "store")
    assert [(p.name, reason) for p, reason in store.verify() if reason] == []
    rows = store.rows()
    results = Counter((run, r.metric, r.conditions.get("run_mode"), point_of(step, r)) for run, step, r in rows)
    assert not results or max(results.values()) == 1, "a result is there twice"
    points = [point_of(step, r) for _, step, r in rows if not r.metric.endswith(MODE_SUFFIX)]
    points += [point_of(a.step, a) for a in store.absences()]
    assert not store.broken
    return Counter({**dict.fromkeys(points, 1), "runs": len({run for run, _, _ in rows})})


def sound_store(place: Place) -> None:
    stored(place)


def sound_journals(place: Place) -> None:
    """Assert that no line that a reader accepts is torn, and that the store is valid."""
    for journal in place.folder.rglob("journal/*.jsonl"):
        reading = read_journal(whole_lines(journal), journal.stem)
        assert (reading.invalid_lines, reading.invalid_records) == (0, []), journal
    for plan in (*place.folder.glob("run/plan.json"), *place.folder.glob(f"store/{MEASURING}/*/plan.json")):
        SurveyPlan.load(plan)
    stored(place)


@dataclass(frozen=True)
class Case:
    """A command that is killed.

    Args:
        start: Returns its words.
        again: Returns its words after a kill, which resume or restart it; no words if everything is complete.
        resumes: Whether `again` is a separate kind of command, to be killed, too.
        sound: Raises an exception if the state after a kill is invalid.
        found: Returns the final results.
        endless: Whether it serves until it is ended.
        cut: Whether a signal ends it successfully, with the results so far.
        temporary: Whether it has temporary files, which no other process could remove after a SIGKILL.
    """

    name: str
    start: Callable[[Place], list[str]]
    again: Callable[[Place], list[str]]
    found: Callable[[Place], Found]
    prepare: Callable[[Place], None] = lambda _: None
    sound: Callable[[Place], None] = sound_journals
    resumes: bool = False
    endless: bool = False
    cut: bool = False
    temporary: bool = False
    kills: int = 16
    needs: Callable[[], object] = lambda: None


def _file(name: str, text: str) -> Callable[[Place], None]:
    return lambda place: (place.folder / name).write_text(text) and None


def _survey(place: Place) -> list[str]:
    go_on = ["--resume"] if (place.folder / "run" / "plan.json").exists() else ["--spec", "spec.toml"]
    return ["survey", *go_on, "--out", "run", "--store", "store"]


def _surveyed(place: Place) -> Found:
    json.loads((place.folder / "run" / "card.json").read_text())
    assert (place.folder / "run" / "report.html").read_text().rstrip().endswith("</html>")
    return stored(place)


def _base(place: Place) -> list[str]:
    go_on = ["--resume"] if (place.folder / "run" / "plan.json").exists() else ["--spec", "base.toml"]
    return ["load", "base", *go_on, "--force", "--out", "run", "--store", "store"]


def _measured(words: list[str]) -> dict[str, Any]:
    def again(place: Place) -> list[str]:
        if list((place.folder / "store" / MEASURING).glob("*/plan.json")):
            return ["measure", "--resume", "--store", "store"]
        return [] if stored(place)["runs"] else words

    return {"start": lambda _: words, "again": again, "found": stored, "resumes": True}


def _sweep(place: Place) -> list[str]:
    return [
        "model",
        "sweep",
        "gs1280-4",
        "--vary",
        "links.bandwidth=1.5..6/24",
        "--instrument",
        "gups",
        "--option",
        "threads=all",
        "--store",
        "store",
        "--resume",
    ]


def _runs(kind: str, place: Place) -> list[Path]:
    return sorted(place.folder.glob(f"{kind}-*"), key=lambda p: int(p.name.split("-")[1].split(".")[0]))


def _load_run(place: Place) -> list[str]:
    """Return the words of a scenario in another folder: one that was killed cannot be resumed."""
    return ["load", "run", "sc.toml", "--out", f"load-{len(_runs('load', place))}", "--store", "store"]


def _sound_load(place: Place) -> None:
    for folder in _runs("load", place):
        if (folder / JOURNAL).exists():
            assert read_run(folder).status in {"ok", "cut", "stopped"}
    stored(place)


def _load_found(place: Place) -> Found:
    last = read_run(_runs("load", place)[-1])
    return Counter((p.program, p.how) for p in last.programs)


def _record(place: Place) -> list[str]:
    number = len({p.name.split(".")[0] for p in _runs("rec", place)})
    return ["record", "--rate", "20", "--duration", "1", "--no-canary", "--out", f"rec-{number}.parquet"]


def _sound_recordings(place: Place) -> None:
    """Assert that each recording is complete, or begins at the first frame and lacks no later one."""
    for path in _runs("rec", place):
        if path.name.startswith("."):
            continue
        if path.suffix == ".part" and not path.stat().st_size:
            continue  # killed before the first line was written
        frames = [f.seq for f in RecordingFile(path).frames()]
        assert frames == [*range(frames[0], frames[0] + len(frames))] if frames else True, path


def _recorded(place: Place) -> Found:
    last = _runs("rec", place)[-1]
    assert last.suffix == ".parquet"
    assert RecordingFile(last).count()
    return Counter()  # the number depends on the time of the end


def _import(_: Place) -> list[str]:
    return ["store", "import", "in.jsonl", "--store", "store"]


def _advise(place: Place) -> list[str]:
    arguments = ["--policies", "none,compact", "--memory", "default", "--pages", "default"]
    go_on = ["--resume", "adv"] if (place.folder / "adv" / "plan.json").exists() else ["--out", "adv", *arguments]
    return ["advise", *go_on, "--budget", "2s", "--store", "store", "--", "sleep", "0.02"]


def _advised(place: Place) -> Found:
    answer = json.loads((place.folder / "adv" / "answer.json").read_text())
    runs = len([x for x in whole_lines(place.folder / "adv" / "journal.jsonl") if json.loads(x)["type"] == "run"])
    assert answer["runs"] <= runs
    records = stored(place)
    assert records["runs"] == 1
    return Counter()  # the number of candidates and of their runs depends on timing


def _sound_advice(place: Place) -> None:
    for line in whole_lines(place.folder / "adv" / "journal.jsonl"):
        json.loads(line)
    stored(place)


def _of_a_run(place: Place) -> None:
    """Write one survey for all trials."""
    folder = place.folder.parent / "undisturbed" / "run"
    if folder.exists():
        shutil.copytree(folder, place.folder / "run")
        return
    (place.folder / "spec.toml").write_text(SPEC)
    assert place.run(_survey(place)).status == 0
    place.started = 0


def _report(_: Place) -> list[str]:
    return ["report", "run", "--out", "rep"]


def _sound_report(place: Place) -> None:
    """Assert that no file under its final name is incomplete."""
    for path in place.folder.glob("rep/**/*"):
        data = path.read_bytes() if path.is_file() and not path.name.startswith(".") else b"-"
        end = {".html": b"</html>", ".json": b"}", ".svg": b"</svg>", ".png": b"IEND\xaeB`\x82"}.get(path.suffix, b"")
        assert data and data.rstrip().endswith(end), path


def _reported(place: Place) -> Found:
    _sound_report(place)
    return Counter(str(p.relative_to(place.folder)) for p in place.folder.glob("rep/**/*"))


def _printed(place: Place) -> Found:
    """Return the printed results: one per kernel. A busy host makes points absent, each of two results, which is
    printed."""
    out, err = ((place.folder / f"{place.log}.{place.started}.{kind}").read_text() for kind in ("out", "err"))
    assert not (place.folder / "data").exists()
    records = [json.loads(x) for x in out.splitlines()]
    kernels = [r["conditions"]["kernel"] for r in records if not r["metric"].endswith(MODE_SUFFIX)]
    assert len(kernels) + 2 * err.count("absent: ") == 16
    return Counter(set(kernels))


BANDWIDTH = [
    "measure",
    "bandwidth",
    "--kernel",
    "copy,scale,add,triad",
    "--footprint",
    "4MiB",
    "--threads",
    "1",
    *ENOUGH,
]
HALO = [
    "measure",
    "halo",
    "--ranks",
    "2",
    "--mpi",
    "openmpi",
    "--words",
    "1,2,4,8",
    "--protocol",
    "sendrecv",
    "--store",
    "./store",
    *ENOUGH,
]
CASES = (
    Case("survey", _survey, _survey, _surveyed, _file("spec.toml", SPEC), resumes=True, kills=12),
    Case("measure", **_measured([*BANDWIDTH, "--store", "./store"])),
    Case(
        "measure --no-store",
        lambda _: [*BANDWIDTH, "--no-store", "--json"],
        lambda _: [*BANDWIDTH, "--no-store", "--json"],
        _printed,
        temporary=True,
    ),
    Case("measure halo", **_measured(HALO), kills=10, temporary=True, needs=lambda: needed("openmpi")),
    Case("load base", _base, _base, stored, _file("base.toml", BASE), resumes=True, kills=10),
    Case("load run", _load_run, _load_run, _load_found, _file("sc.toml", SCENARIO), _sound_load, kills=14),
    Case("record", _record, _record, _recorded, sound=_sound_recordings, cut=True),
    Case("model sweep", _sweep, _sweep, stored, resumes=True, kills=12),
    Case("store import", _import, _import, stored, lambda place: write_results(place.folder / "in.jsonl"), sound_store),
    Case("advise", _advise, _advise, _advised, sound=_sound_advice, resumes=True, kills=10),
    Case("report", _report, _report, _reported, _of_a_run, _sound_report, kills=12),
    Case(
        "serve",
        lambda _: ["serve", "--port", "0", "--store", "store"],
        lambda _: [],
        lambda _: Counter(),
        lambda place: (place.folder / "store").mkdir(),
        sound_store,
        endless=True,
        kills=12,
    ),
)


@dataclass
class Tally:
    """Counts that are printed at the end."""

    kills: Counter[str] = field(default_factory=Counter)
    by: Counter[str] = field(default_factory=Counter)
    early: int = 0  # the command had already ended
    left: list[str] = field(
        default_factory=list
    )  # temporary files and files before their renaming; only SIGKILL may leave any
    faults: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)


def undisturbed(case: Case, place: Place) -> tuple[float, Found]:
    """Return how long the command takes, s, and its results."""
    case.prepare(place)
    start_s = time.monotonic()
    if case.endless:
        command = place.start(case.start(place))
        while not command.out.read_text():
            assert command.child.poll() is None, command.err.read_text()
        time_limit_s = 1.5 * (time.monotonic() - start_s)
        command.kill(signal.SIGTERM, 0)
        command.ended()
        return time_limit_s, Counter()
    completed = place.run(case.start(place))
    assert completed.status == 0, completed.err
    return time.monotonic() - start_s, case.found(place)


def looked_at(case: Case, place: Place, number: int, done: Ended, whole: Found, tally: Tally) -> list[str]:
    """Return the problems after a kill."""
    problems = []
    if orphans := place.orphans():
        problems.append(f"orphans: {orphans}")
    if number == signal.SIGKILL:
        if not case.temporary and (leftovers := place.temporaries()):
            problems.append(f"leaves {leftovers[:5]}")
        place.left = place.temporaries() + place.asides()
        tally.left += place.left
    else:
        word = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        if done.status in {0, -number}:
            # The signal came after the end of the work: nothing is printed, and nothing is missing.
            may_be_cut = case.endless or case.cut
            if "Traceback" in done.err or word in done.err or (not may_be_cut and case.found(place) != whole):
                problems.append(f"status {done.status}, not {128 + number}: {done.err[-300:]!r}")
        elif done.status != 128 + number or not done.complaint.startswith(f"meshmark: {word}"):
            problems.append(f"status {done.status}, says {done.err[-500:]!r}")
        if leftovers := [x for x in place.temporaries() + place.asides() if x not in place.left]:
            problems.append(f"leaves {leftovers[:5]}")
    try:
        case.sound(place)
    except Exception as error:
        problems.append(f"what it left is not well: {type(error).__name__}: {str(error)[:500]}")
    return problems


def trial(case: Case, folder: Path, takes_s: float, whole: Found, seed: int, tally: Tally) -> None:
    """Kill the command once, perhaps twice if it resumes, and then let it finish."""
    rng = random.Random(seed)
    place = Place(folder)
    case.prepare(place)
    problems: list[str] = []
    for turn in range(1 + case.resumes):
        words = case.start(place) if turn == 0 else case.again(place)
        if not words:
            break
        number = SIGNALS[(seed + turn) % len(SIGNALS)]
        command = place.start(words)
        hit = command.kill(number, rng.uniform(0.1, 1.0) * takes_s)
        completed = command.ended()
        with tally.lock:
            if not hit:
                tally.early += 1
                break
            tally.kills[case.name + (" --resume" if turn else "")] += 1
            tally.by[signal.Signals(number).name] += 1
        problems += [
            f"{signal.Signals(number).name} in {place.started}: {w}"
            for w in looked_at(case, place, number, completed, whole, tally)
        ]
    words = case.again(place)
    if words:
        completed = place.run(words)
        if completed.status:
            problems.append(f"again: status {completed.status}: {completed.err[-500:]!r}")
    try:
        facts = case.found(place)
        if facts != whole:
            excess, missing = ([*(a - b).items()][:3] for a, b in ((facts, whole), (whole, facts)))
            problems.append(
                f"in the end: {facts.total()} instead of {whole.total()}: too much {excess}, too little {missing}"
            )
    except Exception as error:
        problems.append(f"in the end: {type(error).__name__}: {str(error)[:500]}")
    if leftovers := place.orphans():
        problems.append(f"in the end orphans: {leftovers}")
    with tally.lock:
        tally.faults += [f"{case.name}, seed {seed}: {w}" for w in problems]


def trials(case: Case, folder: Path, kills: int, first_seed: int = 0) -> Tally:
    """Run trials until `kills` of them were killed, two at once: they mostly wait."""
    tally = Tally()
    takes_s, expected = undisturbed(case, Place(folder / "undisturbed"))
    seeds = iter(range(first_seed, first_seed + 4 * kills + 8))
    with ThreadPoolExecutor(2) as pool:
        while tally.kills.total() < kills * (1 + case.resumes) and not tally.faults:
            cases = list(itertools.islice(seeds, 4))
            assert cases, "it ends before it is killed"
            list(pool.map(lambda s: trial(case, folder / str(s), takes_s, expected, s, tally), cases))
    return tally


def told(tally: Tally) -> str:
    kills = ", ".join(f"{name}: {n}" for name, n in tally.kills.items())
    counts = " ".join(f"{name}:{n}" for name, n in sorted(tally.by.items()))
    remainder = f", {len(tally.left)} files left by SIGKILL" if tally.left else ""
    return f"kills {kills} ({counts}); {tally.early} ended before{remainder}; {len(tally.faults)} faults"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name.replace(" ", "-"))
def test_killed_at_any_moment(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case.needs()
    share = float(os.environ.get("MESHMARK_KILLS", "1"))  # share of the kills, to search for one fault quickly
    seed = int(os.environ.get("MESHMARK_SEED", "0"))
    tally = trials(case, tmp_path, max(1, round(share * case.kills)), seed)
    with capsys.disabled():
        print(f"\n{told(tally)}")
        for failure in tally.faults:
            print(f"  {failure[:700]}")
        for file in sorted({x.rpartition("/")[2] for x in tally.left})[:10]:
            print(f"  left by SIGKILL: {file}")
    assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.slow
def test_an_import_killed_three_times(tmp_path: Path) -> None:
    """This is one of the cases above, short enough for `make test`."""
    case = next(c for c in CASES if c.name == "store import")
    tally = trials(case, tmp_path, 3)
    assert not tally.faults, "\n".join(tally.faults)
