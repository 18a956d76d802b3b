"""Tests of profiles of applications: reports, intervals, stored files, and the reasons for a missing profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.applications.application import of_tables
from meshmark.applications.attempt import ConfigurationRun, attempt
from meshmark.applications.configuration import Configuration, Folders, configurations
from meshmark.applications.effects import profiler
from meshmark.applications.effects.profile import FREQUENCIES_HZ, KEPT, Profile, frequency_hz, read_report, wilson
from meshmark.applications.effects.profiler import JOURNAL, Perf, find_perf, profile_all
from meshmark.applications.preparation import prepare
from meshmark.applications.records import absences, records
from meshmark.applications.trials import BUDGET, INTERRUPTED, ApplicationPlan, Trials
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.store.record import Record
from support import fake_perf

# ------------------------------------------------------------------ reading


def test_a_report_gives_shares_of_the_program_alone() -> None:
    report = read_report(fake_perf.REPORT.splitlines())
    assert (report.event, report.samples, report.lost) == ("cpu-clock", 1000, 3)
    assert [(h.function, h.object, h.samples, h.share) for h in report.functions] == [
        ("sweep(double*, int)", "stencil", 750, 0.75),
        ("clear_page_erms", "kernel", 200, 0.2),
        ("[unknown]", "libm.so.6", 50, 0.05),
    ]
    assert all(h.interval[0] < h.share < h.interval[1] for h in report.functions)


@pytest.mark.parametrize(
    ("printed", "event"),
    [("cycles:Pu", "cycles:u"), ("cycles:ppp", "cycles"), ("cpu-clock", "cpu-clock"), ("cycles:u", "cycles:u")],
)
def test_an_event_is_named_without_its_precision(printed: str, event: str) -> None:
    assert read_report([f"# Samples: 12  of event '{printed}'"]).event == event


@given(st.lists(st.text(alphabet="#\t 0123456789%[].abk\x00\x1b", max_size=60), max_size=20))
def test_any_text_is_read(lines: list[str]) -> None:
    report = read_report(lines)
    assert sum(h.samples for h in report.functions) <= report.samples
    assert all(h.function.isprintable() and h.object.isprintable() for h in report.functions)


def test_only_the_hottest_functions_are_kept_and_all_samples_count() -> None:
    lines = [f"1.00%\t{n}\ta\ta\t[.] f{n}" for n in range(1, 101)]
    report = read_report(lines)
    assert [h.samples for h in report.functions] == list(range(100, 100 - KEPT, -1)) and report.samples == 5050


@given(st.integers(1, 100_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_ends_of_an_interval_are_shares_that_a_score_test_just_accepts(case: tuple[int, int]) -> None:
    count, total = case
    share = count / total
    low, high = wilson(count, total)
    assert 0 <= low <= share <= high <= 1
    for end in (low, high):
        assert end in (0, 1) or (share - end) ** 2 == pytest.approx(1.96**2 * end * (1 - end) / total, rel=1e-3)


def test_the_interval_of_a_share_is_the_published_one() -> None:
    # Newcombe, Statist. Med. 17 (1998), 857-872, Table I, method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


@given(st.floats(0, 1e9))
def test_the_frequency_is_odd_and_within_limits(cpu_s: float) -> None:
    frequency = frequency_hz(cpu_s)
    assert FREQUENCIES_HZ[0] <= frequency <= FREQUENCIES_HZ[1] and frequency % 2 == 1
    assert frequency_hz(100.0) == 201


# ------------------------------------------------------------------ the profiler


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a fake perf as the first one in PATH and return its folder."""
    monkeypatch.setenv("PATH", fake_perf.install(tmp_path / "bin"))
    return tmp_path / "bin"


def kernel(tmp_path: Path, paranoid: int) -> Path:
    """Return the root of a simulated file tree whose `perf_event_paranoid` is `paranoid`."""
    folder = tmp_path / "root" / "proc" / "sys" / "kernel"
    folder.mkdir(parents=True)
    (folder / "perf_event_paranoid").write_text(f"{paranoid}\n")
    return tmp_path / "root"


def test_perf_is_tried_and_leaves_nothing(tmp_path: Path, path: Path) -> None:
    perf = find_perf(tmp_path)
    assert perf == Perf(str(path / "perf"), "perf 6.1.187")
    assert [p.name for p in tmp_path.iterdir()] == ["bin"]


def test_without_perf_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AbsentError, match="perf is not installed") as error:
        find_perf(tmp_path)
    assert "linux-perf" in error.value.hint


def test_perf_that_is_not_allowed_is_absent_with_the_setting(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PERF_REFUSES", "Access to performance monitoring is limited.")
    with pytest.raises(AbsentError, match=r"perf is not allowed: kernel\.perf_event_paranoid is 3") as error:
        find_perf(tmp_path, kernel(tmp_path, 3))
    assert error.value.hint.startswith("sysctl kernel.perf_event_paranoid=2")


def test_perf_that_fails_otherwise_is_quoted(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PERF_REFUSES", "perf not found for kernel 6.1")
    with pytest.raises(AbsentError, match=r"^perf failed: perf not found for kernel 6\.1$"):
        find_perf(tmp_path, kernel(tmp_path, 2))


def test_a_program_perf_that_cannot_run_is_absent(tmp_path: Path, path: Path) -> None:
    (path / "perf").write_bytes(b"\x7fELF")
    with pytest.raises(AbsentError, match="perf cannot be run: "):
        find_perf(tmp_path)


# ------------------------------------------------------------------ profiles of a measurement


def trials(folder: Path, budget_s: float = 1e6) -> Trials:
    """Return a measurement of three configurations, the last of which has no runs."""
    folder.mkdir(exist_ok=True)
    tables = {"application": {"command": "./a {n}"}, "dimensions": {"n": "1,2,3"}}
    plan = ApplicationPlan(
        tables=tables,
        source="/",
        rounds=2,
        warmup=0,
        budget_s=budget_s,
        seed=1,
        margin=0.02,
        run="app-1",
        started="now",
    )
    measurement = Trials(plan, configurations(plan.application))
    for configuration in measurement.all[:2]:
        for round_ in (1, 2):
            times = {"user": 9.0, "system": 1.0}
            outcome = ConfigurationRun(
                configuration=configuration.label, round=round_, value=1.0, elapsed_s=10.0, spent_s=10.0, times=times
            )
            measurement.add(outcome)
    return measurement


class Runs:
    """Simulated runs under perf, which write the file that perf would write."""

    def __init__(self, **more: Any) -> None:
        self.ran: list[str] = []
        self.words: list[Sequence[str]] = []
        self.more = {"value": 1.0, "spent_s": 10.0, **more}

    def __call__(self, one: Configuration, words: Sequence[str]) -> ConfigurationRun:
        self.ran.append(one.label)
        self.words.append(words)
        Path(words[words.index("-o") + 1]).write_text("data")
        return ConfigurationRun(configuration=one.label, round=3, **self.more)


def profiled(found: Trials, folder: Path, path: Path, run: Any) -> list[Profile]:
    return profile_all(found, found.all, folder, Perf(str(path / "perf"), "perf 6"), run)


def test_each_configuration_that_ran_is_profiled_once_and_kept(tmp_path: Path, path: Path) -> None:
    measurement, run, folder = trials(tmp_path / "m"), Runs(), tmp_path / "m"
    profiles = profiled(measurement, folder, path, run)
    assert run.ran == ["n=1", "n=2"] and [p.samples for p in profiles] == [1000, 1000]
    assert run.words[0][run.words[0].index("-F") + 1] == "2001"  # 20,000 samples in 10 s of CPU time
    assert sorted(p.name for p in (folder / "profiles").iterdir()) == ["1.data", "2.data"]
    assert [p.file for p in profiles] == [str(folder / "profiles" / f"{n}.data") for n in (1, 2)]
    assert profiled(measurement, folder, path, run) == profiles and run.ran == ["n=1", "n=2"]
    assert len(measurement.attempts) == 4  # the profiled runs do not count


def test_records_have_the_share_with_its_interval_and_nothing_else_changes(tmp_path: Path, path: Path) -> None:
    measurement = trials(tmp_path / "m")
    profiles = profiled(measurement, tmp_path / "m", path, Runs())
    app = measurement.plan.application
    plain_records, profiled_records = (records(measurement, app, "m", "c", "0", p) for p in ((), profiles))
    shares = [r for r in profiled_records if r.metric == "function_share"]
    assert [r for r in profiled_records if r.metric != "function_share"] != [] and len(profiled_records) - len(
        plain_records
    ) == len(shares) == 6
    first_share = shares[0]
    assert (first_share.value, first_share.conditions["function"], first_share.conditions["n"]) == (
        0.75,
        "sweep(double*, int)",
        "1",
    )
    assert (first_share.conditions["share_low"], first_share.conditions["share_high"]) == wilson(750, 1000)
    assert first_share.bounds is None and first_share.provenance["profiler"] == "perf 6"
    assert [Record.from_json(json.loads(json.dumps(r.to_json()))) for r in shares] == shares
    assert absences(measurement, {}, profiles) == absences(measurement, {})


def test_without_perf_each_configuration_has_the_reason_and_the_absence_is_one(tmp_path: Path) -> None:
    measurement = trials(tmp_path / "m")
    run = Runs()
    profiles = profile_all(
        measurement, measurement.all, tmp_path / "m", AbsentError("perf is not installed", "install it"), run
    )
    assert [p.reason for p in profiles] == ["perf is not installed"] * 2 and not run.ran
    absence = absences(measurement, {}, profiles)
    assert [(a.metric, a.reason, a.enable, a.kind) for a in absence] == [
        ("function_share", "perf is not installed", "install it", "absent")
    ]


def test_a_profiled_run_that_fails_leaves_no_profile_but_a_reason(tmp_path: Path, path: Path) -> None:
    profiles = profiled(trials(tmp_path / "m"), tmp_path / "m", path, Runs(value=None, reason="ended with SIGTERM"))
    assert {p.reason for p in profiles} == {"its run under perf failed: ended with SIGTERM"}
    assert not list((tmp_path / "m" / "profiles").iterdir())


def test_a_profile_without_samples_is_absent(tmp_path: Path) -> None:
    fake_perf.install(tmp_path / "bin", "# Samples: 0  of event 'cycles'\n")
    profiles = profiled(trials(tmp_path / "m"), tmp_path / "m", tmp_path / "bin", Runs())
    assert {p.reason for p in profiles} == {"perf report: it has no samples"}


def test_the_budget_includes_profiles_and_what_is_missing_follows_on_resume(tmp_path: Path, path: Path) -> None:
    measurement, run = trials(tmp_path / "m", budget_s=55.0), Runs()
    profiles = profiled(measurement, tmp_path / "m", path, run)
    assert [p.reason for p in profiles] == ["", BUDGET] and run.ran == ["n=1"]
    measurement.plan.budget_s = 1e6
    assert [p.reason for p in profiled(measurement, tmp_path / "m", path, run)] == ["", ""] and run.ran == [
        "n=1",
        "n=2",
    ]


def test_an_interrupt_keeps_the_profiles_before_it(tmp_path: Path, path: Path) -> None:
    measurement, run = trials(tmp_path / "m"), Runs()

    def interrupted(one: Configuration, words: Sequence[str]) -> ConfigurationRun:
        if one.label == "n=2":
            raise KeyboardInterrupt
        return run(one, words)

    assert [p.configuration for p in profiled(measurement, tmp_path / "m", path, interrupted)] == ["n=1"]
    assert measurement.stopped == INTERRUPTED
    assert [p.name for p in (tmp_path / "m" / "profiles").iterdir()] == ["1.data"]
    assert profiled(measurement, tmp_path / "m", path, run) == []  # nothing is profiled after an interrupt


def test_profiles_above_the_limit_are_read_and_not_kept(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = len(fake_perf.REPORT.encode()) + len("data")
    monkeypatch.setattr(profiler, "MAX_KEPT_BYTES", length + 1)
    profiles = profiled(trials(tmp_path / "m"), tmp_path / "m", path, Runs())
    assert [bool(p.file) for p in profiles] == [True, False] and profiles[1].functions
    assert [p.name for p in (tmp_path / "m" / "profiles").iterdir()] == ["1.data"]


@pytest.mark.parametrize("line", ['{"type": "profile"}', '{"configuration": "n=1", "functions": [{}]}', "[]"])
def test_a_journal_of_something_else_is_refused(tmp_path: Path, path: Path, line: str) -> None:
    measurement = trials(tmp_path / "m")
    (tmp_path / "m" / JOURNAL).write_text(line + "\n")
    with pytest.raises(MeshmarkError, match="line 1 is not a run"):
        profiled(measurement, tmp_path / "m", path, Runs())


# ------------------------------------------------------------------ runs under a command


def under(tmp_path: Path, script: str, words: Sequence[str], **more: Any) -> ConfigurationRun:
    app = of_tables({"application": {"command": ["sh", "-c", script]}, **more}, "a.toml", tmp_path)
    folders = Folders(tmp_path / "measurement")
    folders.root.mkdir(exist_ok=True)
    return attempt(app, configurations(app)[0], folders, 1, under=words)


def test_only_the_first_copy_runs_under_the_words(tmp_path: Path) -> None:
    words = ["env", "UNDER=1"]
    assert under(tmp_path, '[ "${UNDER:-0}" = $(({copy} == 0)) ]', words, dimensions={"copies": 2}).reason == ""
    assert under(tmp_path, "exit 3", words).reason == "ended with status 3: no output"


def test_real_perf_names_the_function_that_takes_the_most(tmp_path: Path) -> None:
    try:
        perf = find_perf(tmp_path)
    except AbsentError as error:
        pytest.skip(str(error))
    (tmp_path / "w.c").write_text(
        "#define LOOP(name) __attribute__((noinline)) long name(long n) "
        "{ volatile long s = 0; for (long i = 0; i < n; ++i) s += i; return s; }\n"
        "LOOP(hot)\nLOOP(cool)\n"
        "int main(void) { return hot(300000000) == cool(100000000); }\n"
    )
    tables = {
        "application": {"command": "{build}/w"},
        "build": {"O1": {"commands": ["cc -O1 {source}/w.c -o {build}/w"]}},
    }
    app = of_tables(tables, "a.toml", tmp_path)
    folders = Folders(tmp_path / "m")
    folders.root.mkdir()
    prepare(app, folders, lambda _: None)
    plan = ApplicationPlan(
        tables=tables, source=str(tmp_path), rounds=1, warmup=0, budget_s=1e6, seed=1, margin=0.02, run="a", started=""
    )
    measurement = Trials(plan, configurations(app))
    measurement.add(attempt(app, measurement.all[0], folders, 1))
    profiles = profile_all(
        measurement, measurement.all, folders.root, perf, lambda c, w: attempt(app, c, folders, 2, under=w)
    )
    assert [p.reason for p in profiles] == [""] and Path(profiles[0].file).stat().st_size > 1000
    shares = {h.function: h.share for h in profiles[0].functions}
    assert shares["hot"] > shares["cool"] > 0  # the true ratio is 3; a busy machine adds the time of the kernel
    assert not any(h.object == "meshmark-place" for h in profiles[0].functions)
