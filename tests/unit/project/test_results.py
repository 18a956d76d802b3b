"""Files of measurement results are checked when they are read, and bench/README.md shows the newest ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import results

from meshmark.errors import UsageError

MACHINE = {"processor": "AMD EPYC", "cpus": 2, "guest": True}
ROW = {"what": "triad", "unit": "GB/s", "ours": [2.0, 1.0, 3.0], "peer": "STREAM", "theirs": 1.0, "ratio": 2.0}


def document(date: str = "2026-11-21", **row: Any) -> dict[str, Any]:
    return {
        "date": date,
        "machine": MACHINE,
        "runs": [{"subject": "Other tools", "command": "bench/peers.py", "rows": [{**ROW, **row}]}],
    }


def written(folder: Path, content: object, name: str = "2026-11-21-amd-epyc.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_every_file_is_valid_and_named_for_its_date_and_processor() -> None:
    files = results.all_results()
    assert files
    for name, content in files.items():
        processor = "".join(c for c in content.machine.processor.lower() if c.isalnum())
        assert name.startswith(content.date) and processor in name.replace("-", "")
        assert results.results_text(content) == (results.FOLDER / name).read_text()


def test_the_readme_shows_the_newest_results() -> None:
    text = results.README.read_text()
    assert results.generated(text, results.all_results()) == text, "run bench/results.py"


def test_the_check_fails_when_a_newer_result_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written(tmp_path, document())
    readme = tmp_path / "README.md"
    readme.write_text("<!-- newest -->\n<!-- /newest -->\n<!-- missed -->\n<!-- /missed -->\n")
    current = results.all_results(tmp_path)
    shown = results.generated(readme.read_text(), current)
    assert results.generated(shown, current) == shown
    written(tmp_path, document("2026-11-22", ours=5.0), "2026-11-22-amd-epyc.json")
    newer = results.generated(shown, results.all_results(tmp_path))
    assert newer != shown and "5.0 GB/s" in newer and "2.0 [1.0, 3.0]" not in newer


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(ours=[3.0, 1.0, 2.0]), "runs[0].rows[0].ours: "),
        (document(ours="fast"), "runs[0].rows[0].ours: "),
        (document(ours=[1.0, 2.0]), "a number, or a list of median (or null), lowest (or null) and highest"),
        (document(our=1.0), "runs[0].rows[0].our: unknown key"),
        (document(reached="yes"), "runs[0].rows[0].reached: found 'yes'; allowed: true and false"),
        (document("21 November"), "date: found '21 November'; allowed: a date such as 2026-11-21"),
        ({"date": "2026-11-21", "runs": []}, "machine: found nothing"),
        ([], "found []"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, content: object, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(UsageError) as error:
        results.read_results(path)
    text = str(error.value)
    assert text.startswith(path.name) and message in text and "\n" not in text


def test_a_file_that_is_not_json_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "2026-11-21-amd-epyc.json"
    path.write_text("{")
    with pytest.raises(UsageError, match=path.name) as error:
        results.read_results(path)
    assert "\n" not in str(error.value)


def test_a_run_is_written_and_read_back_and_replaces_the_earlier_one(tmp_path: Path) -> None:
    machine = results.ResultMachine("AMD EPYC 9224 24-Core", 2, True)

    def save(command: str, value: float, at: results.ResultMachine = machine) -> Path:
        rows = (results.result_row("triad", "GB/s", [value, 2 * value], flags={"noisy"}),)
        return results.save_run(results.ResultRun("Other tools", command, rows), "2026-11-21", at, tmp_path)

    path = save("bench/peers.py", 1.0)
    assert path.name == "2026-11-21-amd-epyc-9224-24-core.json"
    save("bench/npb.py PATH", 2.0)
    save("bench/peers.py", 4.0)
    content = results.read_results(path)
    assert [(r.command, r.rows[0].ours, r.rows[0].flags) for r in content.runs] == [
        ("bench/npb.py PATH", [3.0, 2.0, 4.0], ("noisy",)),
        ("bench/peers.py", [6.0, 4.0, 8.0], ("noisy",)),
    ]
    assert sum('"what"' in line for line in path.read_text().splitlines()) == 2  # one row per line
    other = save("bench/peers.py", 4.0, results.ResultMachine("AMD EPYC 9224 24-Core", 4, True))
    assert other.name == "2026-11-21-amd-epyc-9224-24-core-2.json"


def test_ratios_are_those_of_pairs_and_of_speeds_if_requested() -> None:
    row = results.result_row("npb", "s", [1.0, 2.0], peer="reference", theirs=[2.0, 6.0], of_speeds=True)
    assert row.ratio == [2.5, 2.0, 3.0]
    assert results.result_row("x", "ns", [1.0, 2.0], theirs=[2.0, 4.0]).ratio == [0.5, 0.5, 0.5]


def test_aims_are_judged_and_unknown_numbers_are_left_out() -> None:
    assert results.result_row("x", "%", 3.0, limits=(None, 2)).reached is False
    assert results.result_row("x", "%", 3.0).reached is None
    nan = float("nan")
    assert results.result_row("x", "s", nan, limits=(None, 2)).reached is None
    row = results.result_row("x", "s", results.Figure(1.0, nan, 3.0))
    assert row.ours == [1.0, None, 3.0]
    assert results.figure_text(row.ours, "s") == "1.0, at most 3.0 s"


def test_missed_aims_stay_visible_until_a_newer_result_reaches_them(tmp_path: Path) -> None:
    written(tmp_path, document(ratio=None, aim="≤ 1", reached=False, notes="the reason"))
    assert "the reason" in results.missed_table(results.all_results(tmp_path))
    written(tmp_path, document("2026-11-22", ratio=None, aim="≤ 1", reached=True), "2026-11-22-amd-epyc.json")
    assert "the reason" not in results.missed_table(results.all_results(tmp_path))


def test_commands_are_recorded_without_paths() -> None:
    argv = ["/home/me/bench/comm.py", "peers", "--osu=/home/me/osu", "--only", "fft 1024|mod2d", "/tmp/x"]
    assert results.public_command(argv) == "bench/comm.py peers --osu=PATH --only 'fft 1024|mod2d' PATH"
