"""`meshmark doctor mpi`: every trap present and absent, with simulated launchers; then the launchers of this system."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.doctor.finding import ORDER, HostFinding
from meshmark.doctor.mpi import attempt
from meshmark.doctor.mpi.attempt import CommandResult, MpiHost, try_for_real
from meshmark.doctor.mpi.checks import examine
from meshmark.errors import AbsentError, UsageError
from meshmark.measure.runs import launch
from meshmark.store.record import median_interval
from support.cli import meshmark
from support.mpi_here import installed
from support.waiting import alive, until

NOWHERE = Path("/proc/nonexistent")  # nobody can create a file in /proc
Answer = Callable[[list[str], Mapping[str, str]], CommandResult]


def result(metric: str, value: float, **conditions: Any) -> str:
    samples = [value] * 7
    interval = median_interval(samples)
    return (
        json.dumps(
            {
                "type": "result",
                "schema": 1,
                "source": "host",
                "machine": "made-up",
                "instrument": "x",
                "metric": metric,
                "unit": "s",
                "better": "lower",
                "value": value,
                "interval": list(interval or ()),
                "samples": samples,
                "conditions": conditions,
                "flags": [],
                "provenance": {},
            }
        )
        + "\n"
    )


def absent(reason: str) -> str:
    return json.dumps({"type": "absent", "instrument": "x", "metric": "y", "conditions": {}, "reason": reason}) + "\n"


def windows(wrong: int, beyond: Sequence[int] = (8,)) -> str:
    """Return the report of `defects` on windows, with `wrong` words wrong in windows of 16 + `beyond` bytes."""
    return "".join(
        result(
            "wrong_words",
            n,
            trial="window",
            protocol=p,
            words=words,
            window_bytes=8 * words + extra,
            **({"shifted_bytes": -8} if n else {}),
        )
        for p in ("put", "get")
        for words in (16, 4096)
        for extra in (0, 8)
        for n in [wrong if extra in beyond else 0]
    )


def coarrays(wrong: int, bad: Sequence[int] = (8,)) -> str:
    """Return the report of `defects` on co-arrays, with `wrong` words wrong on an image in co-arrays of the `bad`
    sizes."""
    return "".join(
        result("wrong_words", wrong if size in bad else 0, trial=t, sent_words=32, window_bytes=size)
        for t, sizes in (("caf_scalar", [8]), ("caf_element", [8, 16]), ("caf_event", [8, 16]))
        for size in sizes
    )


def well(words: list[str], _: Mapping[str, str]) -> CommandResult:
    """Answer like a launcher without any trap."""
    line = " ".join(words)
    if "Cpus_allowed_list" in line:
        ranks = int(words[words.index("-n") + 1])
        return CommandResult(0, "".join(f"Cpus_allowed_list:\t{0 if ranks == 1 else r}-1\n" for r in range(ranks)), "")
    if "pingpong" in words:
        return CommandResult(0, result("message_latency", 2e-5, transport="network mesh0"), "")
    if "defects" in words:
        if "window" in words:
            return CommandResult(0, windows(0), "")
        return CommandResult(0, coarrays(0), "")
    if "halo" in words:
        return CommandResult(0, result("exchange_time", 1e-5 if words[words.index("-n") + 1] == "4" else 1e-6), "")
    return CommandResult(0, "", "")


def looked(
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    kind: str = "openmpi",
    *,
    root: bool = True,
    cpus: tuple[int, ...] = (0, 1),
    environment: Mapping[str, str] | None = None,
    asked: str = "",
    shared: Path | None = None,
) -> dict[str, HostFinding]:
    """Return the findings by name, without that about the library."""
    launchers = {kind: launch.Launcher(kind, Path("/made/up/mpirun"), Path("/made/up/meshmark-comm"))}
    monkeypatch.setattr(launch, "launchers", lambda: launchers)
    programs = {"apt-get": "/usr/bin/apt-get", "true": "/bin/true"}.get
    host = MpiHost(cpus, root, environment or {}, programs, shared or NOWHERE)

    def attempt(
        words: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None
    ) -> CommandResult:
        return answer(list(words), environment)

    findings = examine(asked or kind, host=host, attempt=attempt)
    assert [ORDER.index(f.verdict) for f in findings] == sorted(ORDER.index(f.verdict) for f in findings)
    assert all(f.value and f.effect and len(f.value) <= 200 for f in findings)
    return {f.name.partition(": ")[2]: f for f in findings}


def but(condition: Callable[[list[str], Mapping[str, str]], bool], otherwise: CommandResult) -> Answer:
    """Return an answer that is `otherwise` if the condition holds, and correct otherwise."""
    return lambda words, environment: otherwise if condition(words, environment) else well(words, environment)


@pytest.mark.parametrize("kind", ["openmpi", "mpich", "mpi"])
def test_what_does_not_spring_is_well_and_says_what_was_seen(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    finding = looked(monkeypatch, well, kind)
    verdicts = {name: f.verdict for name, f in finding.items()}
    unknown_names = {"hosts with a common kernel", "stale shared memory"} if kind == "mpi" else set()
    assert {n for n, j in verdicts.items() if j != "ok"} == unknown_names
    assert len(finding) == (9 if kind == "openmpi" else 7)
    assert not any(f.command for f in finding.values())
    assert "10.0 µs" in finding["more ranks than CPUs"].value and "32 scalar puts" in finding["co-arrays"].value


def test_root_is_refused_and_told_how_to_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(words: list[str], environment: Mapping[str, str]) -> bool:
        return words[-1] == "/bin/true" and "OMPI_ALLOW_RUN_AS_ROOT" not in environment

    attempt = CommandResult(1, "", "-----\nmpirun has detected an attempt to run as root.\n")
    finding = looked(monkeypatch, but(refuses, attempt))["started by root"]
    assert finding.verdict == "hidden" and "refuses" in finding.value
    assert finding.command == "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    finding = looked(monkeypatch, but(refuses, attempt), environment=env)["started by root"]
    assert finding.verdict == "ok" and "allowed by OMPI_ALLOW_RUN_AS_ROOT" in finding.value
    assert looked(monkeypatch, but(refuses, attempt), root=False)["started by root"].value == "not running as root"
    # Permission to run as root does not help if a launcher refuses for another reason.
    other = looked(monkeypatch, but(lambda words, _: words[-1] == "/bin/true", attempt))["started by root"]
    assert other.verdict == "hidden" and "attempt to run as root" in other.value and not other.command


def test_ranks_that_spin_are_told_from_ranks_that_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    def spins(words: list[str], environment: Mapping[str, str]) -> bool:
        is_crowded = "irecv_isend" in words and words[words.index("-n") + 1] == "4"
        return is_crowded and "mpi_yield_when_idle" not in words and "MPIR_CVAR_POLLS_BEFORE_YIELD" not in environment

    slow = CommandResult(0, result("exchange_time", 5e-3), "")
    for kind, cure in (("openmpi", "mpi_yield_when_idle 1"), ("mpich", "MPIR_CVAR_POLLS_BEFORE_YIELD=16")):
        slow_finding = looked(monkeypatch, but(spins, slow), kind)["more ranks than CPUs"]
        assert slow_finding.verdict == "spoils-measurements" and cure in slow_finding.command
        assert "4 ranks on 2 CPUs: 5.00 ms" in slow_finding.value and "10.0 µs" in slow_finding.value
    # If yielding does not help, there is no command for it, but the trap is reported nevertheless.
    answer = but(lambda w, _: "irecv_isend" in w and w[w.index("-n") + 1] == "4", slow)
    slow_finding = looked(monkeypatch, answer, "mpich")["more ranks than CPUs"]
    assert slow_finding.verdict == "spoils-measurements" and not slow_finding.command
    assert "1.00 µs with one CPU per rank" in slow_finding.value
    never = looked(monkeypatch, but(spins, CommandResult(124, "", "", timed_out=True)))["more ranks than CPUs"]
    assert never.verdict == "spoils-measurements" and "did not end within 20 s" in never.value
    finding = looked(monkeypatch, but(lambda w, _: "irecv_isend" in w, CommandResult(1, "", "not enough slots\n")))
    failed = finding["more ranks than CPUs"]
    assert failed.verdict == "unknown" and "not enough slots" in failed.value


def test_ranks_on_one_cpu_are_seen_within_a_job_and_between_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    def bound(cpus: Sequence[str]) -> Answer:
        def answer(words: list[str], environment: Mapping[str, str]) -> CommandResult:
            if "Cpus_allowed_list" not in " ".join(words):
                return well(words, environment)
            ranks = int(words[words.index("-n") + 1])
            return CommandResult(0, "".join(f"Cpus_allowed_list:\t{c}\n" for c in cpus[:ranks]), "")

        return answer

    within = looked(monkeypatch, bound(["0", "0"]))["two ranks on one CPU"]
    assert within.verdict == "spoils-measurements" and "both ranks of one job are bound to CPU 0" in within.value
    between = looked(monkeypatch, bound(["0", "1"]))["two ranks on one CPU"]
    assert between.verdict == "spoils-measurements" and "two concurrent jobs are both bound to CPU 0" in between.value
    assert "--bind-to none" in between.command
    assert looked(monkeypatch, bound(["0-1", "0-1"]))["two ranks on one CPU"].verdict == "ok"
    assert looked(monkeypatch, bound(["0", "0"]), cpus=(0,))["two ranks on one CPU"].value == "only one CPU"
    assert looked(monkeypatch, bound([]))["two ranks on one CPU"].verdict == "unknown"


def test_a_short_cut_between_hosts_is_told_by_its_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    short = CommandResult(0, result("message_latency", 3e-7, transport="shared memory"), "")

    def as_started(words: list[str], environment: Mapping[str, str]) -> bool:
        return "pingpong" in words and "UCX_TLS" not in environment

    finding = looked(monkeypatch, but(as_started, short), "mpich")["hosts with a common kernel"]
    assert finding.verdict == "spoils-measurements" and finding.command == "export UCX_TLS=tcp,self"
    assert "shared memory, 300 ns" in finding.value and "with the remedy: network mesh0, 20.0 µs" in finding.value
    unchanged = looked(monkeypatch, but(lambda w, _: "pingpong" in w, short), "mpich")["hosts with a common kernel"]
    assert unchanged.verdict == "spoils-measurements" and not unchanged.command
    forbidden = CommandResult(1, "", "unshare: unshare failed: Operation not permitted\n")
    finding = looked(monkeypatch, but(lambda w, _: "pingpong" in w, forbidden), root=False)[
        "hosts with a common kernel"
    ]
    assert finding.verdict == "unknown" and "Operation not permitted" in finding.value and "sudo" in finding.command


def test_files_of_dead_jobs_are_told_from_those_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def seen(kind: str) -> HostFinding:
        return looked(monkeypatch, well, kind, shared=tmp_path)["stale shared memory"]

    names = [
        "vader_segment.n1.0.1a.0",
        "vader_segment.n1.0.1a.1",
        "vader_segment.n1.0.2b.1",
        "mpich_shar_tmpAb9",
        "vader_segment.n1.0.2b.0",
        "vader_segment.n1.0.3c.0",
        "vader_segment.n1;reboot",
        "mine",
    ]
    for name in names:
        (tmp_path / name).write_bytes(bytes(1 << 20))
        os.utime(tmp_path / name, (1e9, 1e9))
    (tmp_path / "vader_segment.n1.0.4d.0").write_bytes(bytes(1 << 20))  # recently created
    (tmp_path / "vader_segment.n1.0.5e.0").symlink_to(tmp_path / "mine")
    with (tmp_path / names[4]).open("rb"), (tmp_path / names[5]).open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 1 << 20)
        file.close()
        answer = seen("openmpi")
        assert (
            answer.verdict == "spoils-measurements"
            and answer.value.startswith("3 files in")
            and "3 MiB" in answer.value
        )
        assert answer.command == f"rm {tmp_path}/vader_segment.n1.0.1a.* {tmp_path}/vader_segment.n1.0.2b.1"
        mapping.close()
    assert seen("openmpi").value.startswith("5 files in")
    assert seen("mpich").command == f"rm {tmp_path}/mpich_shar_tmpAb9"
    (tmp_path / "mpich_shar_tmpAb9").unlink()
    assert seen("mpich").verdict == "ok"


def test_a_crash_at_the_end_is_seen_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = CommandResult(
        139, result("exchange_time", 1e-6), "mpirun noticed that process rank 0 exited on signal 11 (…)\n"
    )

    def hooked(words: list[str], _: Mapping[str, str]) -> bool:
        return "shmem_put" in words and "opal_common_ucx_opal_mem_hooks" not in words

    finding = looked(monkeypatch, but(hooked, crash))["end of OpenSHMEM programs"]
    assert finding.verdict == "hidden" and "was terminated by SIGSEGV after its results" in finding.value
    assert finding.command == "oshrun --mca opal_common_ucx_opal_mem_hooks 0 …"
    unchanged = looked(monkeypatch, but(lambda w, _: "shmem_put" in w, crash))["end of OpenSHMEM programs"]
    assert unchanged.verdict == "hidden" and not unchanged.command
    attempt = CommandResult(77, absent("this build has no OpenSHMEM"), "")
    finding = looked(monkeypatch, but(lambda w, _: "shmem_put" in w, attempt))["end of OpenSHMEM programs"]
    assert finding.verdict == "hidden" and "absent: this build has no OpenSHMEM" in finding.value
    assert "libopenmpi-dev" in finding.command


def test_windows_that_cannot_be_made_over_tcp_are_seen_with_their_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = CommandResult(77, absent("MPI_Win_allocate: MPI_ERR_WIN: invalid window"), "")
    finding = looked(monkeypatch, but(lambda w, _: "rma_fence" in w and "rdma,sm,pt2pt" not in w, attempt))
    assert finding["windows over TCP"].verdict == "hidden" and "MPI_ERR_WIN" in finding["windows over TCP"].value
    assert finding["windows over TCP"].command == "mpirun --mca osc rdma,sm,pt2pt …"
    assert not looked(monkeypatch, but(lambda w, _: "rma_fence" in w, attempt))["windows over TCP"].command


def test_words_beside_their_place_are_told_by_size_and_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = CommandResult(0, windows(7), "")
    odd_sizes = looked(monkeypatch, but(lambda w, _: "window" in w, attempt), "mpich")["windows of odd sizes"]
    assert odd_sizes.verdict == "spoils-measurements" and odd_sizes.command.startswith("in the program: round sizes")
    assert "get and put fail from 16 words in a window of 136 bytes, shifted by -8 bytes" in odd_sizes.value
    assert "(4 of 8 messages, 0 in windows of a multiple of 16 bytes)" in odd_sizes.value
    # If even windows fail, rounding does not help.
    attempt = CommandResult(0, windows(7, beyond=(0, 8)), "")
    odd_sizes = looked(monkeypatch, but(lambda w, _: "window" in w, attempt), "mpich")["windows of odd sizes"]
    assert "(8 of 8 messages, 4 in" in odd_sizes.value and not odd_sizes.command
    finding = looked(monkeypatch, but(lambda w, _: "window" in w, CommandResult(139, "", "")), "mpich")[
        "windows of odd sizes"
    ]
    assert finding.verdict == "unknown" and "SIGSEGV" in finding.value


def test_what_co_arrays_lose_is_counted_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(words: list[str], environment: Mapping[str, str]) -> bool:
        return "caf_scalar,caf_element,caf_event" in words and "MPIR_CVAR_NOLOCAL" not in environment

    lossy = looked(monkeypatch, but(tried, CommandResult(0, coarrays(16), "")), "mpich")["co-arrays"]
    assert lossy.verdict == "spoils-measurements"
    assert "16 of 32 scalar puts, 16 of 64 element puts, 16 of 64 event posts" in lossy.value
    assert "none where an image's part is a multiple of 16 bytes" in lossy.value
    assert lossy.command.startswith("export MPIR_CVAR_NOLOCAL=1") and "2 words or 4 events" in lossy.command
    # A cure that was not seen to help is not suggested.
    pattern = "caf_scalar,caf_element,caf_event"
    unchanged = looked(monkeypatch, but(lambda w, _: pattern in w, CommandResult(0, coarrays(16), "")), "mpich")[
        "co-arrays"
    ]
    assert unchanged.command.startswith("in the program:") and "NOLOCAL" not in unchanged.command
    any_size = CommandResult(0, coarrays(16, bad=(8, 16)), "")
    unchanged = looked(monkeypatch, but(lambda w, _: pattern in w, any_size), "openmpi")["co-arrays"]
    assert unchanged.verdict == "spoils-measurements" and "multiple" not in unchanged.value and not unchanged.command
    finding = looked(monkeypatch, but(tried, CommandResult(139, coarrays(0), "")), "mpich")["co-arrays"]
    assert finding.verdict == "unknown" and "SIGSEGV" in finding.value
    attempt = CommandResult(77, absent("this build has no co-arrays"), "")
    lossy = looked(monkeypatch, but(tried, attempt), "mpich")["co-arrays"]
    assert lossy.verdict == "hidden" and "libcoarrays-mpich-dev" in lossy.command


def test_libraries_that_are_not_here_are_told_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = looked(monkeypatch, well, "openmpi", asked="all", root=False)["installed"]
    assert finding.name.startswith("MPICH") and finding.verdict == "hidden"
    assert finding.command.startswith("sudo apt-get install mpich libmpich-dev")
    with pytest.raises(AbsentError, match="mpich"):
        looked(monkeypatch, well, "openmpi", asked="mpich")
    with pytest.raises(UsageError, match="found 'lam'; allowed: any, all, openmpi"):
        looked(monkeypatch, well, "openmpi", asked="lam")
    monkeypatch.setattr(launch, "launchers", dict)
    with pytest.raises(AbsentError, match="no MPI library"):
        examine("all")


def test_a_trial_without_an_end_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(attempt, "LIMIT_S", 0.5)
    note = tmp_path / "pid"
    start_s = time.monotonic()
    # It ignores SIGTERM, too.
    result = try_for_real(
        ["sh", "-c", f"trap '' TERM; sleep 100 & echo $! > {note}; wait; sleep 100"], dict(os.environ)
    )
    assert result.timed_out and "did not end within" in result.why and time.monotonic() - start_s < 60
    assert until(lambda: not alive(int(note.read_text())), 5)


def test_a_trial_that_is_interrupted_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import os, sys; from meshmark.doctor.mpi.attempt import try_for_real\n"
        "from meshmark.cli.process import end_by_signals; end_by_signals()\n"
        "try_for_real(['sh', '-c', sys.argv[1]], dict(os.environ))"
    )
    # The shell tells its rank to end, as launchers do; a killed launcher cannot.
    script = f"trap 'kill $!; exit' TERM; setsid sleep 600 & echo $! > {note}; wait"
    with subprocess.Popen([sys.executable, "-c", code, script], stderr=subprocess.DEVNULL) as child:
        try:
            assert until(lambda: note.exists() and note.read_text().endswith("\n"))
            child.terminate()
            child.wait(30)
        finally:
            child.kill()
    assert until(lambda: not alive(int(note.read_text())))


def test_what_a_trial_came_to_is_told_in_a_few_words(tmp_path: Path) -> None:
    environment = dict(os.environ)
    assert try_for_real(["true"], environment).why == ""
    assert try_for_real(["sh", "-c", "exit 3"], environment).why == "exit status 3"
    assert try_for_real(["sh", "-c", "kill -9 $$"], environment).why == "was terminated by SIGKILL"
    script = "echo ----- >&2; echo 'no such slot' >&2; exit 1"
    assert try_for_real(["sh", "-c", script], environment).why == "no such slot"
    assert "No such file" in try_for_real([str(tmp_path / "none")], environment).why
    cpu = min(os.sched_getaffinity(0))
    assert try_for_real(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"], environment, [cpu]).out.split() == [
        "Cpus_allowed_list:",
        str(cpu),
    ]


# ------------------------------------------------------------------ what is here

HERE = installed()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return meshmark("doctor", *words, timeout_s=300)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mip"], "doctor: found 'mip'; allowed: mpi"),
        (["--mpi", "all"], "--mpi: found without mpi"),
        (["mpi", "--root", "/"], "--root: found with mpi"),
        (["mpi", "--mpi", "lam"], "mpi: found 'lam'"),
    ],
)
def test_a_wrong_request_is_one_line(words: list[str], says: str) -> None:
    completed = run(*words)
    assert completed.returncode == 2 and says in completed.stderr and completed.stdout == ""


@pytest.mark.skipif(not HERE, reason="no MPI library is installed")
@pytest.mark.parametrize("kind", HERE)
def test_the_traps_of_the_launchers_here_are_tried(kind: str) -> None:
    completed = run("mpi", "--mpi", kind, "--json")
    assert completed.returncode == 0, completed.stderr
    findings = {f["name"].partition(": ")[2]: f for f in map(json.loads, completed.stdout.splitlines())}
    assert len(findings) == (9 if kind == "openmpi" else 7)
    assert all(set(f) == {"name", "found", "judged", "why", "command"} for f in findings.values())
    # The features on which Meshmark relies can be tested wherever it runs.
    pairs = ["two ranks on one CPU"] if len(os.sched_getaffinity(0)) > 1 else []
    for name in ("more ranks than CPUs", "windows of odd sizes", *pairs):
        assert findings[name]["judged"] != "unknown", findings[name]
    if os.geteuid() == 0 and "OMPI_ALLOW_RUN_AS_ROOT" not in os.environ and kind == "openmpi":
        assert findings["started by root"]["judged"] == "hidden"
