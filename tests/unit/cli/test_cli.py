"""Test the command line as a user runs it: exit statuses, one-line errors, data on stdout, surveys and reports."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from meshmark.cli.app import SECTIONS, app
from meshmark.cli.measure.instrument_help import instrument_help
from meshmark.describe import descriptions, find_probe
from support.cli import meshmark, start

SMALL = """
name = "small"
[[step]]
instrument = "clock"
options = { clocks = "tsc,monotonic", budget = "1s" }
[[step]]
instrument = "latency"
repetitions = 2
options = { footprint = "4KiB..256KiB", cpus = "first", budget = "20s", interval = 50 }
[[step]]
instrument = "gups"
options = { table = "1MiB", threads = "1", budget = "20s", interval = 50 }
[[step]]
instrument = "latency"
name = "no-such-pages"
options = { footprint = "1GiB", pages = "1GiB", budget = "1s" }
""".replace("first", str(min(os.sched_getaffinity(0))))


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["measure", "", "--on", "gs1280-4", "--no-store"], 2, "instrument: found no value, one is required"),
        (["measure", "bogus"], 2, "latency"),
        (["measure", "latency", "--footprint", "-4KiB"], 2, "latency: --footprint: found '-4KiB'"),
        (["measure", "latency", "--footprint", "9999999TiB"], 2, "--footprint"),
        (["measure", "latency", "--footprint", "4KiX"], 2, "latency: --footprint: found '4KiX'"),
        (["measure", "latency", "--cpus", "99999"], 2, "99999"),
        (["measure", "latency", "--cpus", "3-1"], 2, "cpus"),
        (["measure", "latency", "--wrong", "1"], 2, "allowed: --footprint, --stride"),
        (["measure", "latency", "--budget", "soon"], 2, "budget"),
        (["measure", "latency", "--footprint"], 2, "one is required"),
        (["measure", "latency", "--on", "atlantis"], 2, "found no machine 'atlantis'"),
        (["measure", "latency", "--on", "paper:gs1280"], 77, "its values are published"),
        (["measure", "latency", "--pages", "1GiB", "--footprint", "1GiB", "--no-store", "--budget", "1s"], 77, "1GiB"),
        (["list", "nonsense"], 2, "allowed: instruments"),
        (["survey", "--spec", "/proc/nonexistent.toml"], 2, "nonexistent"),
        (["survey", "--quick", "--spec", "x.toml"], 2, "--quick"),
        (["survey", "--resume"], 2, "found no survey"),
        (["report", "no-such-run"], 2, "found no run 'no-such-run'"),
        (["report"], 2, "latest: found no run of this machine"),
        (["store", "import", "/proc/nonexistent"], 2, "cannot read /proc/nonexistent: No such file"),
        (["store", "export", "--format", "xml"], 2, "jsonl, csv"),
        (["frobnicate"], 2, "frobnicate"),
        (["measure", "bandwidth", "--store", "stream", "--no-store"], 2, "store: found 'stream'"),
        (["model", "measure", "exchange", "gs1280-4", "--block", "1TiB", "--no-store"], 2, "--block: found"),
        (["record", "--set", "a=1", "--out", "night.parquet"], 2, "--set"),
        (["survey", "--frobnicate"], 2, "frobnicate"),
    ],
)
def test_a_bad_word_is_one_line_and_a_status(home: dict[str, str], words: list[str], status: int, says: str) -> None:
    if "1GiB" in words and Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages").exists():
        pool = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages").read_text().strip()
        if pool != "0":
            pytest.skip("this machine has a pool of 1 GiB pages")
    completed = meshmark(*words, env=home)
    assert completed.returncode == status, completed.stderr
    assert says in completed.stderr and completed.stdout == ""
    assert "Traceback" not in completed.stderr
    errors = [x for x in completed.stderr.splitlines() if x.startswith(("meshmark: error:", "meshmark: absent:"))]
    assert len(errors) == 1
    assert not list(Path(home["XDG_DATA_HOME"]).rglob("*.part"))


@pytest.mark.parametrize(
    "words",
    [
        "model show gs1280-4 --svg",
        "place --jobs 1 --save",
        "place --jobs 1 --svg",
        "model measure hot_spot gs1280-4 --chains 1 --no-store --frames",
        "store export --out",
    ],
)
def test_a_device_is_written_into_and_stays(home: dict[str, str], tmp_path: Path, words: str) -> None:
    device = tmp_path / "null.svg"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("no device can be made here")
    assert meshmark(*words.split(), str(device), env=home).returncode == 0
    assert stat.S_ISCHR(device.lstat().st_mode) and {p.name for p in tmp_path.iterdir()} <= {"null.svg", "data"}


@pytest.mark.parametrize(
    "words",
    [
        "--{}",
        "load show {}",
        "replay {}.parquet",
        "report {}",
        "model show {}",
        "list {}",
        "measure latency --footprint {}",
        "survey --spec {}",
        "load run {}",
    ],
)
def test_an_error_quotes_a_hundred_characters(home: dict[str, str], words: str) -> None:
    completed = meshmark(*words.format("x" * 240).split(), env=home)
    (error,) = [x for x in completed.stderr.splitlines() if x.startswith("meshmark: error:")]
    assert completed.returncode in (1, 2) and "x" * 50 in error
    assert max(map(len, error.split())) <= 103, "a hundred, their quotation marks, and a colon"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("name = 'x'\n[[step]]\ninstrument = 'latency'\nbudgt = 1", "step[0].budgt"),
        ("name = 'x'\n[[step]]\ninstrument = 'latency'\noptions = { footprint = '4 parsecs' }", "footprint"),
        ("name = 'x'\n[[step]]\ninstrument = 'latency'\noptions = { fotprint = '4KiB' }", "fotprint"),
        ("name = 'x'\n[[step]]\ninstrument = 'nonsense'", "nonsense"),
        ("name = 'x'", "step"),
        ("name = ", "not TOML"),
        ("", "name"),
        ("name = '../../x'\n[[step]]\n", "name"),
    ],
)
def test_a_wrong_spec_measures_nothing(home: dict[str, str], tmp_path: Path, spec: str, says: str) -> None:
    (tmp_path / "my.toml").write_text(spec)
    completed = meshmark("survey", "--spec", str(tmp_path / "my.toml"), "--out", str(tmp_path / "run"), env=home)
    assert completed.returncode == 2 and says in completed.stderr and "my.toml" in completed.stderr, completed.stderr
    assert not (tmp_path / "run").exists()


def test_a_store_of_another_version_is_refused_before_anything_is_measured(
    home: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "meshmark-store.json").write_text('{"version": 999}')
    completed = meshmark("survey", "--store", str(store), "--out", str(tmp_path / "run"), env=home)
    assert completed.returncode == 1 and "999" in completed.stderr
    assert [p.name for p in store.iterdir()] == ["meshmark-store.json"] and not (tmp_path / "run").exists()


def test_a_survey_from_spec_to_report(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(SMALL)
    run_folder = tmp_path / "run"
    completed = meshmark("survey", "--spec", str(tmp_path / "my.toml"), "--out", str(run_folder), "--json", env=home)
    assert completed.returncode == 0, completed.stderr
    records = [json.loads(x) for x in completed.stdout.splitlines()]
    assert {r["instrument"] for r in records} == {"clock", "latency", "gups"}
    curve = [r for r in records if r["metric"] == "load_latency"]
    assert len(curve) == 7 and all(r["conditions"]["runs"] == 2 for r in curve)
    page = (run_folder / "report.html").read_text()
    assert "1GiB" in page and "absent" in page
    card = json.loads((run_folder / "card.json").read_text())
    assert card["figures"]["gups"]["value"] > 0 and "absent" in card["figures"]["peak_fp64"]
    assert any(a["instrument"] == "latency" for a in card["absent"])
    # A run cannot be measured a second time in its folder; its report can be written again into another folder.
    second = meshmark("survey", "--spec", str(tmp_path / "my.toml"), "--out", str(run_folder), env=home)
    assert second.returncode == 2 and "--resume" in second.stderr
    elsewhere = meshmark("report", str(run_folder), "--out", str(tmp_path / "copy"), env=home)
    assert elsewhere.returncode == 0 and (tmp_path / "copy" / "report.html").exists()
    # The store has the complete records.
    assert meshmark("store", "verify", env=home).returncode == 0
    exported = meshmark("store", "export", "--instrument", "latency", env=home).stdout.splitlines()
    assert len([x for x in exported if '"load_latency"' in x]) == 14  # two runs of seven points


def test_a_survey_in_a_folder_whose_name_is_no_text_has_a_report(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        'name = "s"\n[[step]]\ninstrument = "clock"\noptions = { budget = "200ms", clocks = "tsc" }\n'
    )
    out = os.fsdecode(bytes(tmp_path) + b"/\xff\xfe")
    completed = meshmark("survey", "--spec", str(tmp_path / "my.toml"), "--out", out, env=home)
    assert completed.returncode == 0, completed.stderr
    assert r"/\udcff\udcfe" in (Path(out) / "report.html").read_text()


@pytest.mark.slow
def test_killed_again_and_again_a_survey_ends_and_measures_nothing_twice(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(SMALL)
    out = tmp_path / "run"
    rng = random.Random(7)
    words = ["survey", "--spec", str(tmp_path / "my.toml"), "--out", str(out)]
    kills = 0
    for _ in range(12):
        with start(*words, env=home, start_new_session=True) as child:
            try:
                child.wait(rng.uniform(0.7, 2.2))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                kills += 1
        if child.returncode == 0:
            break
        if (out / "plan.json").exists():
            words = ["survey", "--resume", "--out", str(out)]
    else:
        assert meshmark(*words, env=home).returncode == 0
    assert kills >= 1
    for journal in (out / "journal").glob("*.jsonl"):
        results_by_point = Counter()
        for text in journal.read_text().splitlines():
            try:
                event = json.loads(text)
            except ValueError:
                continue  # the line is incomplete because the process was killed
            if event["type"] == "result" and "point" in event:
                results_by_point[event["point"], event["metric"]] += 1
        assert all(n == 1 for n in results_by_point.values()), (journal, results_by_point)
    assert len(json.loads((out / "card.json").read_text())["levels"]) >= 1
    assert not list(tmp_path.rglob("*.part")) and meshmark("store", "verify", env=home).returncode == 0


def test_a_run_of_another_machine_is_not_gone_on_with(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('name = "s"\n[[step]]\ninstrument = "clock"\noptions = { budget = "1s" }\n')
    out = tmp_path / "run"
    assert meshmark("survey", "--spec", str(tmp_path / "my.toml"), "--out", str(out), env=home).returncode == 0
    state = json.loads((out / "run.json").read_text())
    state["host"]["machine"]["id"] = "elsewhere-0123"
    (out / "run.json").write_text(json.dumps(state))
    completed = meshmark("survey", "--resume", "--out", str(out), env=home)
    assert (
        completed.returncode == 2
        and "found a run of elsewhere-0123" in completed.stderr
        and "this is " in completed.stderr
    )


def test_help_is_there_for_everything_and_carries_an_example(home: dict[str, str]) -> None:
    for words in (
        ["survey"],
        ["measure"],
        ["report"],
        ["list"],
        ["store", "export"],
        ["store", "import"],
        ["machine", "show"],
        ["measure", "latency"],
        ["measure", "app"],
    ):
        completed = meshmark(*words, "--help", env=home)
        assert completed.returncode == 0 and "example: " in completed.stdout.lower(), words
    for d in descriptions().values():
        assert "example: " in instrument_help(d).lower(), d.name


def test_the_probe_alone_feeds_the_store(home: dict[str, str], tmp_path: Path) -> None:
    probe = subprocess.run(
        [find_probe(), "clock", "--budget", "1s", "--clocks", "tsc"], capture_output=True, check=True
    )
    torn = tmp_path / "n042.jsonl"
    torn.write_bytes(b"nonsense\n" + probe.stdout + b'{"type": "result", "val')
    completed = meshmark("store", "import", str(torn), env=home)
    last_line = probe.stdout.count(b"\n") + 2
    assert completed.returncode == 0 and f"left out 1: line {last_line}: not a complete JSON object" in completed.stderr
    listed = meshmark("store", "list", "--json", env=home)
    (run,) = map(json.loads, listed.stdout.splitlines())
    assert run["run"].startswith(f"{run['machine']}-") and run["run"] == completed.stdout.strip()


def test_an_instruments_own_stores_are_no_folder(home: dict[str, str], tmp_path: Path) -> None:
    """`--store` names the store folder, and for `bandwidth` also the kind of store instructions; both may be given."""
    words = [
        "measure",
        "bandwidth",
        "--kernel",
        "copy",
        "--threads",
        "1",
        "--footprint",
        "1MiB",
        "--budget",
        "1s",
        "--json",
        "--store",
        "streaming",
        "--store",
        str(tmp_path / "kept"),
    ]
    completed = meshmark(*words, env=home, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    stores = {json.loads(line)["conditions"].get("store") for line in completed.stdout.splitlines()}
    assert "streaming" in stores and "ordinary" not in stores
    assert (tmp_path / "kept").is_dir() and not (tmp_path / "streaming").exists()


@pytest.mark.parametrize("words", [["-V"], ["--version"]])
def test_the_version_is_printed(home: dict[str, str], words: list[str]) -> None:
    completed = meshmark(*words, env=home)
    assert (completed.returncode, completed.stdout) == (0, f"meshmark {version('meshmark')}\n")


@pytest.mark.parametrize("words", [["measure", "latency"], ["model", "show"], ["run"], ["survey"], []])
def test_help_is_a_command_too(home: dict[str, str], words: list[str]) -> None:
    completed = meshmark("help", *words, env=home)
    assert completed.returncode == 0 and completed.stdout == meshmark(*words, "--help", env=home).stdout


def test_composites_are_listed_with_their_members(home: dict[str, str]) -> None:
    rows = [json.loads(line) for line in meshmark("list", "composites", "--json", env=home).stdout.splitlines()]
    assert ("open13", 13) in [(row["composite"], row["members"]) for row in rows]


def test_machines_have_a_year_and_the_newest_is_named(home: dict[str, str]) -> None:
    rows = [json.loads(line) for line in meshmark("list", "machines", "--json", env=home).stdout.splitlines()]
    years = {row["machine"]: row["year"] for row in rows}
    assert (years["gs1280-16"], years["paper:cray-x1"], years["host"]) == (2003, 2005, "")
    newest = max(year for year in years.values() if year)
    assert f"the newest of them is from {newest}; " in meshmark("list", "machines", env=home).stderr


def test_every_command_is_in_one_section_of_the_help() -> None:
    names = [name for section in SECTIONS.values() for name in section]
    assert sorted(names) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["measure", "latncy"], "latency"),
        (["measure", "latency", "--footprnt", "4KiB"], "--footprint"),
        (["measure", "latency", "--pattern", "randm", "--no-store"], "random"),
        (["list", "metric"], "metrics"),
    ],
)
def test_an_error_names_what_was_probably_meant(home: dict[str, str], words: list[str], meant: str) -> None:
    completed = meshmark(*words, env=home)
    assert completed.returncode == 2 and completed.stderr.endswith(f"hint: did you mean {meant}?\n"), completed.stderr
