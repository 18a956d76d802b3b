"""Accounting files of batch systems: which jobs they contain, and why others are left out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.queue.accounting.reading import READERS, read_accounting
from meshmark.load.queue.jobs import JobCollector, JobMix

SWF = """\
; Version: 2.2
; MaxProcs: 128
    1        0     10   3600    4   -1    -1   4  7200    -1   1  3  1  -1  1 -1 -1 -1
    2       60     -1     -1    8   -1    -1   8  7200    -1   5  3  1  -1  1 -1 -1 -1
    3       90      5    120   -1   -1    -1   2   600    -1   0  3  1  -1  1 -1 -1 -1
    4      100      5      0    1   -1    -1   1   600    -1   1  3  1  -1  1 -1 -1 -1
    5      110      5     50   -1   -1    -1  -1   600    -1   1  3  1  -1  1 -1 -1 -1
    6      120      5     50    1   -1    -1   1   600    -1   3  3  1  -1  1 -1 -1 -1
    7      -1       5     50    1   -1    -1   1   600    -1   1  3  1  -1  1 -1 -1 -1
a line that is none
"""

SACCT = """\
JobID|Submit|Start|End|ElapsedRaw|AllocCPUS|State|
100|2026-03-01T08:00:00|2026-03-01T08:00:10|2026-03-01T09:00:10|3600|16|COMPLETED|
100.batch|2026-03-01T08:00:10|2026-03-01T08:00:10|2026-03-01T09:00:10|3600|16|COMPLETED|
100.extern|2026-03-01T08:00:10|2026-03-01T08:00:10|2026-03-01T09:00:10|3600|16|COMPLETED|
101_7|2026-03-01T08:01:00|2026-03-01T08:02:00|2026-03-01T08:03:00|60|1|FAILED|
101_[8-9]|2026-03-01T08:01:00|Unknown|Unknown|0|1|PENDING|
102|2026-03-01T08:02:00|None|2026-03-01T08:02:30|0|0|CANCELLED by 1000|
103+0|2026-03-01T08:03:00|2026-03-01T08:04:00|2026-03-01T08:05:00|60|4|COMPLETED|
103+1|2026-03-01T08:03:00|2026-03-01T08:04:00|2026-03-01T08:05:00|60|8|COMPLETED|
104|2026-03-01T08:04:00|2026-03-01T08:05:00|Unknown|900|8|RUNNING|
105|2026-03-01T08:05:00
"""

PBS = """\
03/01/2026 08:00:00;Q;7.server;queue=short
03/01/2026 08:00:10;S;7.server;user=a queue=short ctime=1772352000 start=1772352010 exec_host=n1/0*4
03/01/2026 09:00:10;E;7.server;user=a jobname="my job" ctime=1772352000 qtime=1772352000 etime=1772352000 \
start=1772352010 exec_host=n1/0*4 Resource_List.ncpus=4 end=1772355610 Exit_status=0 resources_used.walltime=01:00:00
03/01/2026 08:10:00;E;8.server;qtime=1772352060 start=1772352070 exec_host=n1/0-1+n2/0-1 end=1772352600 \
resources_used.walltime=530
03/01/2026 08:10:00;E;9[3].server;qtime=1772352090 start=1772352100 exec_host=n3/5 end=1772352110 \
resources_used.walltime=00:0:9
03/01/2026 08:10:00;E;9[].server;qtime=1772352090
03/01/2026 08:11:00;Q;10.server;queue=short
03/01/2026 08:12:00;D;10.server;requestor=a@server
03/01/2026 08:12:00;S;11.server;qtime=1772352100 start=1772352720
"""

LSF = """\
"JOB_FINISH" "10.108" 1772355610 386 1501 33554434 1 1772352000 0 0 1772352010 "a" "normal" "" "" "" "login" "/a" "" \
"" "" "1772352000.386" 0 1 "n1" 64 100.0 "" "/bin/sleep 3" 0.004 0.006
"JOB_FINISH" "10.108" 1772352600 387 1501 33554434 8 1772352060 0 0 1772352070 "a" "normal" "select[type == any]" "" \
"" "login" "/a" "" "" "" "f" 2 "n1" "n2" 2 "4*n1" "4*n2" 32 100.0 "the ""best"" job" "true" 0.1 0.1
"EVENT_ADRSV_FINISH" "10.108" 1772352600 1772352600 1
"JOB_FINISH" "10.108" 1772352700 388 1501 33554434 1 1772352100 0 0 0 "a" "normal" "" "" "" "login" "/a" "" "" "" "f" \
0 0 32 100.0 "" "true" 0 0
"JOB_FINISH" "10.108" 1772352700 389 1501
"""


def read(tmp_path: Path, option: str, text: str) -> JobMix:
    path = tmp_path / "accounts"
    path.write_text(text, encoding="utf-8")
    return read_accounting(option, path)


def jobs(mix: JobMix) -> list[tuple[str, float, float, int]]:
    return [(j.name, j.submit_s, j.run_s, j.slots) for j in mix.jobs]


def test_jobs_of_the_standard_workload_format(tmp_path: Path) -> None:
    mix = read(tmp_path, "--swf", SWF)
    assert jobs(mix) == [("1", 0, 3600, 4), ("3", 90, 120, 2)]
    assert mix.left_out == {
        "without a start or an end": 1,
        "of less than a second": 1,
        "without a number of CPUs": 1,
        "without a time of submission": 1,
        "on a line that cannot be read": 1,
    }


def test_jobs_of_slurm_with_arrays_and_heterogeneous_parts(tmp_path: Path) -> None:
    mix = read(tmp_path, "--sacct", SACCT)
    assert jobs(mix) == [("100", 0, 3600, 16), ("101_7", 60, 60, 1), ("103+0", 180, 60, 4), ("103+1", 180, 60, 8)]
    assert mix.left_out == {"without a start or an end": 3, "on a line that cannot be read": 1}


@pytest.mark.parametrize(
    ("elapsed", "run_s"),
    [("1-02:03:04", 93784), ("02:03:04", 7384), ("03:04", 184), ("03:04.567", 184), ("1-02:03", 93780), ("", 3600)],
)
def test_every_form_of_an_elapsed_time_of_slurm(tmp_path: Path, elapsed: str, run_s: float) -> None:
    row = f"1|2026-03-01T08:00|2026-03-01T08:00|2026-03-01T09:00|{elapsed}|2"
    assert read(tmp_path, "--sacct", f"JobID|Submit|Start|End|Elapsed|NCPUS\n{row}\n").jobs[0].run_s == run_s


def test_jobs_of_pbs_and_torque(tmp_path: Path) -> None:
    mix = read(tmp_path, "--pbs", PBS)
    assert jobs(mix) == [("7.server", 0, 3600, 4), ("8.server", 60, 530, 4), ("9[3].server", 90, 9, 1)]
    assert mix.left_out == {"without a start": 1, "without an end": 1}


def test_jobs_of_lsf(tmp_path: Path) -> None:
    mix = read(tmp_path, "--lsf", LSF)
    assert jobs(mix) == [("386", 0, 3600, 1), ("387", 60, 530, 8)]
    assert mix.left_out == {"without a start or an end": 1, "on a line that cannot be read": 1}


def test_a_clock_that_jumps_back_is_named(tmp_path: Path) -> None:
    text = "JobID|Submit|Start|End|NCPUS\n1|2026-03-29T01:50:00|2026-03-29T02:50:00|2026-03-29T02:10:00|1\n"
    with pytest.raises(UsageError, match=r"no job that ran; left out: 1 job whose end is before the start: the clock"):
        read(tmp_path, "--sacct", text)


def test_compressed_files_and_cut_off_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    whole = SWF.splitlines(keepends=True)
    path.write_bytes(gzip.compress("".join([*whole[:3], whole[4][:40]]).encode()))
    mix = read_accounting("--swf", path)
    assert len(mix.jobs) == 1 and mix.left_out == {"on an incomplete line": 1}
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UsageError, match=r"--swf: cannot read .*log.swf.gz"):
        read_accounting("--swf", path)


@pytest.mark.parametrize("option", READERS)
def test_another_format_is_named_in_one_line(tmp_path: Path, option: str) -> None:
    with pytest.raises(UsageError) as failure:
        read(tmp_path, option, "<html>\n<body>\n")
    assert str(failure.value).startswith(f"{option}: ") and "allowed: " in str(failure.value)
    assert "\n" not in str(failure.value)
    with pytest.raises(UsageError, match=option):
        read(tmp_path, option, "")


@pytest.mark.parametrize("option", READERS)
@given(data=st.data())
@settings(max_examples=60)
def test_damaged_files_never_raise_anything_else(option: str, data: st.DataObject) -> None:
    text = {"--swf": SWF, "--sacct": SACCT, "--pbs": PBS, "--lsf": LSF}[option]
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=8)) + text[at + data.draw(st.integers(0, 20)) :]
    collector = JobCollector()
    try:
        READERS[option](iter(damaged.splitlines()), collector)
        mix = collector.mix("x", option)
    except (ValueError, MeshmarkError):
        return
    assert all(j.run_s > 0 and j.slots >= 1 and j.submit_s >= 0 for j in mix.jobs)
