"""Mixes of jobs: their files, simulations under policies, and summaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.load.queue.jobs import JobMix, QueuedJob
from meshmark.load.queue.mix import QueueRules, read_mix
from meshmark.load.queue.simulation import JobRun, PolicyRun, QueueMachine, simulate
from meshmark.load.queue.summary import gains, summarise, waiting_over_time

TWO_SOCKETS = QueueMachine("two sockets", "pack:2 [numa] core:2 pu:1")
MIX = """\
[mix]
name = "night"
policies = ["balance", "pack"]

[[job]]
name = "small"
copies = 3
every_s = 10
run_time_s = 30

[[job]]
name = "large"
copies = 2
submit_s = [1, 2.5]
run_time_s = 5.0
slots = 2
memory_gb_per_s = 3
command = ["./a.out", "-n"]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mix.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_mix_file_has_fixed_and_random_times(tmp_path: Path) -> None:
    file = read_mix(write(tmp_path, MIX))
    assert file.is_random and file.rules == QueueRules("night", ("balance", "pack"))
    one = file.mix(1)
    assert one == file.mix(1) != file.mix(2)
    large = [job for job in one.jobs if job.name == "large"]
    assert large == [QueuedJob("large", t, 5.0, 2, 3e9, ("./a.out", "-n")) for t in (1.0, 2.5)]
    assert [job.submit_s for job in one.jobs] == sorted(job.submit_s for job in one.jobs)


def test_random_times_have_the_stated_mean(tmp_path: Path) -> None:
    text = '[[job]]\nname = "a"\ncopies = 20000\nevery_s = 3\nrun_time_s = 1\n'
    assert read_mix(write(tmp_path, text)).mix(0).jobs[-1].submit_s == pytest.approx(60_000, rel=0.03)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("run_time_s = 30", "run_time_s = 0", "job[0].run_time_s: found 0; allowed: a number above 0"),
        ("run_time_s = 30", "", "job[0].run_time_s: found nothing"),
        ("copies = 3", "copy = 3", "job[0].copy: unknown key; did you mean copies"),
        ("submit_s = [1, 2.5]", "submit_s = [1]", "job large: submit_s: found 1 times for 2 copies"),
        ("slots = 2", "slots = 0", "job[1].slots: found 0; allowed: an integer from 1"),
        ('policies = ["balance", "pack"]', "policies = []", "mix.policies"),
        ("[mix]", '[mix]\ndiscipline = "lifo"', "mix.discipline: found 'lifo'; allowed: fcfs, first-fit"),
        ("[mix]", '[mix]\nmax_slots = "all"', "mix.max_slots: found 'all'"),
        ("copies = 3", "copies = 999_999", "copies: found 1000001 jobs in all"),
    ],
)
def test_a_wrong_key_of_a_mix_is_named(tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(UsageError) as failure:
        read_mix(write(tmp_path, MIX.replace(old, new)))
    assert text in str(failure.value) and "\n" not in str(failure.value)


def test_pack_waits_for_a_whole_socket_and_balance_does_not() -> None:
    mix = JobMix("m", (QueuedJob("a", 0, 9, 1), QueuedJob("b", 0, 9, 1), QueuedJob("c", 1, 4, 2)))
    balance = simulate(mix, QueueRules(), "balance", TWO_SOCKETS)
    assert [(r.start_s, r.end_s) for r in balance.runs] == [(0, 9), (0, 9), (1, 5)]
    assert balance.runs[2].cpus == (1, 3) and balance.slots == 4
    unlimited = QueueRules(max_slots=0)
    none = simulate(JobMix("m", tuple(QueuedJob("a", 0, 3, 4) for _ in range(2))), unlimited, "none", TWO_SOCKETS)
    assert [r.end_s for r in none.runs] == [6, 6] and none.runs[0].cpus == ()


def test_jobs_that_are_too_large_are_refused_with_the_reason() -> None:
    run = simulate(JobMix("m", (QueuedJob("a", 0, 1, 5), QueuedJob("b", 0, 1, 1))), QueueRules(), "any", TWO_SOCKETS)
    assert run.refused == {0: "it needs 5 slots of 4"} and [r.job for r in run.runs] == [1]


def test_a_policy_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match=r"^policy spread: found 'spread'"):
        simulate(JobMix("m", (QueuedJob("a", 0, 1, 1),)), QueueRules(), "spread", TWO_SOCKETS)


def test_the_summary_counts_what_its_definitions_say() -> None:
    mix = JobMix("m", (QueuedJob("a", 0, 20, 2), QueuedJob("b", 4, 10, 1)))
    summary = summarise(mix, PolicyRun("p", 2, (JobRun(0, 0, 24), JobRun(1, 24, 34, (0,), True))))
    assert summary.total_s == 34 and summary.use == pytest.approx(50 / 68)
    assert summary.waiting_s == pytest.approx({"mean": 10, "median": 10, "p95": 19, "max": 20})
    assert summary.stretch["mean"] == pytest.approx((24 / 20 + 1) / 2)
    assert summary.slowdown["mean"] == pytest.approx((24 / 20 + 30 / 10) / 2)
    assert summary.oversubscribed == 1 and summary.refused == 0


def test_slowdowns_of_short_jobs_are_bounded_by_the_median_run_time() -> None:
    mix = JobMix("m", (QueuedJob("a", 0, 2, 1), QueuedJob("b", 0, 2, 1), QueuedJob("c", 0, 0.1, 1)))
    summary = summarise(mix, PolicyRun("p", 1, tuple(JobRun(i, 2 * i, 2 * i + mix.jobs[i].run_s) for i in range(3))))
    assert summary.slowdown["max"] == pytest.approx(4.1 / 2)


def test_gains_have_intervals_only_with_enough_repetitions() -> None:
    mix = JobMix("m", (QueuedJob("a", 0, 10, 1),))

    def row(wait_s: float) -> list[object]:
        return [summarise(mix, PolicyRun(p, 1, (JobRun(0, w, w + 10),))) for p, w in (("a", 0.0), ("b", wait_s))]

    (one,) = gains([row(5)])  # type: ignore[list-item]
    assert (one.policy, one.total, one.total_interval) == ("b", pytest.approx(1.5), None)
    (many,) = gains([row(5 + 0.1 * n) for n in range(8)])  # type: ignore[list-item]
    assert many.waiting_interval_s is not None and many.waiting_interval_s[0] < many.waiting_s < 5.8
    assert (
        many.total_interval is not None and 1.5 <= many.total_interval[0] < many.total < many.total_interval[1] < 1.58
    )


def test_the_number_of_waiting_jobs_over_time() -> None:
    mix = JobMix("m", tuple(QueuedJob("a", t, 5, 1) for t in (0, 1, 2)))
    run = PolicyRun("p", 1, (JobRun(0, 0, 5), JobRun(1, 5, 10), JobRun(2, 10, 15)))
    assert waiting_over_time(mix, run) == [(0.0, 0), (1, 1), (2, 2), (5, 1), (10, 0)]


def test_a_window_keeps_the_jobs_that_were_submitted_in_it() -> None:
    mix = JobMix("m", tuple(QueuedJob(str(t), t, 5, 1) for t in (0, 10, 20, 30)), {"x": 1})
    part = mix.within(10, 30)
    assert [(j.name, j.submit_s) for j in part.jobs] == [("10", 0), ("20", 10)]
    assert part.left_out == {"x": 1, "submitted at another time": 2}
    assert [j.run_s for j in part.scaled(0.1).jobs] == [0.5, 0.5]
    with pytest.raises(UsageError, match=r"^--from, --to: found no job"):
        mix.within(31, 40)
