"""Node files: complete files, damaged files, and files of other programs."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.fleet.data.results import ResultError, read_result
from support.made_fleet import KERNELS, lines_of, write_result


def test_a_whole_file_has_results_files_and_how_it_ended(tmp_path: Path) -> None:
    result = read_result(write_result(tmp_path, "n1", lines_of("n1", repetitions=2, problems=["a wrong result"])))
    assert (result.name, result.status, result.damage, result.wrong) == ("n1", "ok", "", ["a wrong result"])
    assert [s.id for s in result.steps] == ["01-bandwidth.r1", "02-bandwidth.r2"]
    assert [r.conditions["kernel"] for r in result.steps[0].reading.records] == list(KERNELS)
    assert result.files["proc/sys/kernel/osrelease"] == b"6.1.0\n"


def test_bytes_of_firmware_tables_are_exact(tmp_path: Path) -> None:
    table = bytes(range(256))
    lines = lines_of("n1", recorded={"sys/firmware/dmi/tables/DMI": table.decode("latin-1")})
    assert read_result(write_result(tmp_path, "n1", lines)).files["sys/firmware/dmi/tables/DMI"] == table


def test_a_killed_runner_leaves_its_finished_steps(tmp_path: Path) -> None:
    lines = lines_of("n1", repetitions=2)
    path = write_result(tmp_path, "n1", lines[:-3])
    result = read_result(path)
    assert result.status == "damaged" and "the runner was killed" in result.damage
    assert [s.status for s in result.steps] == ["ok", ""]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_a_file_that_ends_in_the_middle_is_read_until_there(tmp_path: Path, share: float) -> None:
    path = write_result(tmp_path, "n1", lines_of("n1", repetitions=20))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    result = read_result(path)
    assert "in the middle" in result.damage and result.name == "n1"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a result"),
        (b"no gzip", "not a result"),
        (gzip.compress(b"[]\n"), "not a result"),
        (gzip.compress(b'{"format":"meshmark node result","version":7}\n'), "version: found 7"),
        (gzip.compress(b'{"format":"meshmark node result","version":1}\n'), "plan: found nothing"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "n1.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(ResultError, match=why):
        read_result(path)


@given(st.binary(max_size=400), st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_no_damage_raises_another_exception(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int) -> None:
    path = write_result(tmp_path_factory.mktemp("node"), "n1", lines_of("n1"))
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[:at] + junk + text[at + len(junk) :]))
    with contextlib.suppress(ResultError):
        read_result(path)
