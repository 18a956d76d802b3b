"""Ratings: groups and starts from runs, CSV files of runs, and real runs in rounds that resume after SIGKILL."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.experiments.rating import RatedRun, Rating, to_json
from meshmark.experiments.rating_file import add_runs, read_runs
from meshmark.statistics.pairs import MeritUnit
from support.cli import meshmark, start
from support.waiting import until

HIGHER = MeritUnit("higher", "MB/s")
PRINTS = "echo v $((SIZE * 1000 + $(od -An -N1 -tu1 /dev/urandom) / 16))"


def runs_of(**values: list[float]) -> dict[str, list[RatedRun]]:
    return {name: [RatedRun(value) for value in runs] for name, runs in values.items()}


def near(value: float, count: int = 10) -> list[float]:
    return [value * (1 + 0.001 * (i % 3)) for i in range(count)]


def test_the_best_group_is_a_in_either_direction() -> None:
    runs = runs_of(low=near(50), high=near(100), low_too=near(50.1))
    higher = Rating(runs, HIGHER, 0.02)
    assert higher.letters == {"high": "A", "low": "B", "low_too": "B"}
    assert Rating(runs, MeritUnit("lower", "s"), 0.02).letters == {"high": "B", "low": "A", "low_too": "A"}
    assert next(one.name for one in higher.configurations) == "high"


def test_starts_are_at_levels_between_and_beyond() -> None:
    mixed = [*near(50, 6), 100.0, 100.1, 75.0, 30.0, 130.0]
    rating = Rating(runs_of(bound=near(100), mixed=mixed), HIGHER, 0.02)
    starts = {one.name: one.starts for one in rating.configurations}
    assert starts["bound"] == {"A": 10}
    assert starts["mixed"] == {"B": 6, "A": 2, "between A and B": 1, "worse than B": 1, "better than A": 1}


def test_groups_of_one_level_share_its_starts() -> None:
    scattered = [100 * (1 + 0.06 * (-1) ** i * (i % 5) / 4) for i in range(20)]
    rating = Rating(runs_of(scattered=scattered, steady=near(100, 20)), HIGHER, 0.02)
    assert rating.letters == {"steady": "A", "scattered": "B"}
    answer = to_json(rating, "triad")
    assert answer["cuts"][-1]["kind"] == "spread" and answer["configurations"][0]["starts"] == {"A/B": 20}
    by_name = {one["configuration"]: one for one in answer["configurations"]}
    assert by_name["scattered"]["spread_ratio"] == 1 and by_name["steady"]["spread_ratio_high"] < 0.2


def test_slow_starts_are_explained_by_where_they_were() -> None:
    fast = [RatedRun(value, place="stayed") for value in near(100)]
    slow = [RatedRun(value, place="with remote pages") for value in near(80)]
    runs = {"bound": fast, "kernel": [*fast[:3], *slow, RatedRun(81.0, place="stayed"), RatedRun(80.0)]}
    kernel = next(one for one in Rating(runs, HIGHER, 0.02).configurations if one.name == "kernel")
    assert kernel.starts == {"B": 12, "A": 3}
    assert kernel.places == {"A": {"stayed": 3}, "B": {"with remote pages": 10, "stayed": 1}}


def test_a_file_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("\ufeffkernel,threads,triad\na,2,10\na,2,11\nb,2,20\nb,4,\n", encoding="utf-8")
    file = read_runs(path, ["kernel", "threads"], "triad")
    assert {name: [run.value for run in runs] for name, runs in file.runs.items()} == {
        "kernel=a threads=2": [10, 11],
        "kernel=b threads=2": [20],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel,value\na,1\n", "found the columns kernel, value; required: configuration"),
        ("configuration,value\na,0\n", "line 2: value: found '0'; allowed: a number above 0"),
        ("configuration,value\na,nan\n", "line 2: value: found 'nan'; allowed: a number above 0"),
        ("configuration,value\n,1\n", "line 2: configuration: found ''; allowed: the name of a configuration"),
        ("configuration,value\n\x1b[2J,1\n", "line 2: configuration: found"),
        ("configuration,value,unit\na,1,s\na,2,ms\n", "line 3: unit: found 'ms'; allowed: s, as in earlier rows"),
        ("configuration,value,better\na,1,most\n", "line 2: better: found 'most'; allowed: lower, higher"),
        ('configuration,value\na,"1\n', "is not a CSV file"),
        ("configuration,value\na\n", None),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str | None) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    if message is None:
        assert not read_runs(path).runs
        return
    with pytest.raises(UsageError) as caught:
        read_runs(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_runs_are_added_to_complete_files_only(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    add_runs(path, [{"configuration": "a", "value": 1.5, "unit": "s", "better": "lower", "run": "one"}])
    add_runs(path, [{"configuration": "b", "value": 2.5, "unit": "s", "better": "lower", "run": "two"}])
    file = read_runs(path)
    assert list(file.runs) == ["a", "b"] and file.sessions == {"one", "two"} and file.better == "lower"
    with path.open("a", encoding="utf-8") as torn:
        torn.write("c,3")
    with pytest.raises(UsageError, match="incomplete last line"):
        add_runs(path, [])
    other = tmp_path / "other.csv"
    other.write_text("kernel,value\n", encoding="utf-8")
    with pytest.raises(UsageError, match="found the columns kernel, value"):
        add_runs(other, [])
    refused = meshmark("rate", "--as", "x", "--add-to", other, "--", "touch", tmp_path / "ran")
    assert refused.returncode == 2 and not (tmp_path / "ran").exists()


def test_settings_are_rated_in_rounds(tmp_path: Path) -> None:
    more = ["--rounds", 8, "--pattern", r"v (\S+)", "--better", "higher", "--seed", 1, "--json"]
    settings = ["SIZE=1", "SIZE=2", "SIZE=2 + run:--bind none"]
    done = meshmark("rate", *more, *settings, "--", "sh", "-c", PRINTS, env={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [group["configurations"] for group in answer["groups"]] in (
        [["SIZE=2", "SIZE=2 + run:--bind none"], ["SIZE=1"]],
        [["SIZE=2 + run:--bind none", "SIZE=2"], ["SIZE=1"]],
    )
    assert answer["session"]["runs"] == 24 and not answer["session"]["failed"]
    for one in answer["configurations"]:
        counts = [count for places in one["places"].values() for count in places.values()]
        assert sum(counts) == one["runs"] == 8
    folder = tmp_path / "meshmark/runs" / answer["session"]["run"]
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    orders = {tuple(line["side"] for line in lines if line["pair"] == number) for number in range(8)}
    assert len(orders) > 1 and all(len(set(order)) == 3 for order in orders)


def test_a_setting_that_fails_is_left_out(tmp_path: Path) -> None:
    script = f"test $SIZE != 3 || exit 7; {PRINTS}"
    more = ["--rounds", 3, "--pattern", r"v (\S+)", "--better", "higher"]
    done = meshmark("rate", *more, "SIZE=1", "SIZE=3", "--", "sh", "-c", script, env={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "left out: SIZE=3: ended with status 7" in done.stdout
    assert "3 rounds cannot show a difference" not in done.stdout  # one configuration is left
    none = meshmark("rate", "same", "--", "sh", "-c", "exit 7", env={"XDG_DATA_HOME": str(tmp_path)})
    assert none.returncode == 1 and "every setting failed: same: ended with status 7" in none.stderr


def test_a_killed_rating_resumes(tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    more = ["--rounds", 30, "--pattern", r"v (\S+)", "--better", "higher"]
    child = start(
        "rate",
        *more,
        "SIZE=1",
        "SIZE=2",
        "--",
        "sh",
        "-c",
        f"head -c 3000000 /dev/urandom | md5sum >&2; {PRINTS}",
        env=home,
    )

    def journals() -> list[Path]:
        return [path for path in tmp_path.rglob("journal.jsonl") if path.read_bytes().count(b"\n") >= 5]

    assert until(journals)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    run = journals()[0].parent
    before = run.joinpath("journal.jsonl").read_bytes()
    before = before[: before.rfind(b"\n") + 1]
    done = meshmark("rate", "--resume", run.name, "--json", env=home)
    assert done.returncode == 0, done.stderr
    assert run.joinpath("journal.jsonl").read_bytes().startswith(before)
    answer = json.loads(done.stdout)
    assert [one["runs"] for one in answer["configurations"]] == [30, 30]
    assert [group["configurations"] for group in answer["groups"]] == [["SIZE=2"], ["SIZE=1"]]


def test_configurations_of_different_boots_collect_in_a_file(tmp_path: Path) -> None:
    path, home = tmp_path / "kernels.csv", {"XDG_DATA_HOME": str(tmp_path)}
    for name, size in (("old", 1), ("new", 2)):
        more = ["--as", name, "--add-to", path, "--rounds", 8, "--pattern", r"v (\S+)", "--better", "higher"]
        done = meshmark("rate", *more, "--", "sh", "-c", PRINTS, env={**home, "SIZE": str(size)})
        assert done.returncode == 0, done.stderr
    assert "2 groups among 2 configurations" in done.stdout
    rated = meshmark("rate", path, "--json")
    assert [group["configurations"] for group in json.loads(rated.stdout)["groups"]] == [["new"], ["old"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "COMMAND: found none; allowed: settings and a command after --"),
        (["same", "other"], "COMMAND: found none; allowed: settings and a command after --"),
        (["--as", "x", "--", "true"], "--as: found without --add-to"),
        (["bind:nonsense", "--", "true"], "SETTING: bind: found 'nonsense'"),
        (["same", "shell:true", "--", "true"], "shell:true: found a shell command, but none in same"),
        (["same", "--better", "higher", "--", "true"], "--better: found without --pattern or --metric"),
        (["missing.csv"], "missing.csv"),
    ],
)
def test_requests_that_make_no_sense_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    done = meshmark("rate", *words, env={"XDG_DATA_HOME": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
