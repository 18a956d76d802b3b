"""`meshmark record -- COMMAND`: exit statuses, signals, streams and marks, whatever the command does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshmark.watch.marks import END, START
from meshmark.watch.recording import RecordingError, RecordingFile
from support.cli import command, environment, meshmark, start
from support.waiting import alive, listening, until

QUICK = ("--rate", "20", "--no-canary")


def recorded(out: Path, *words: str, options: tuple[str, ...] = QUICK, **more: Any) -> subprocess.CompletedProcess[str]:
    """Record a command to `out`."""
    return meshmark("record", *options, "--out", out, "--", *words, **more)


def test_a_command_is_marked_at_its_start_and_its_end(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    completed = recorded(out, "sh", "-c", "cat; echo error >&2; sleep 0.3; exit 7", input="from stdin\n")
    assert completed.returncode == 7
    assert completed.stdout == "from stdin\n", "standard output belongs to the command"
    assert completed.stderr.startswith("error\n") and "status 7" in completed.stderr
    recording = RecordingFile(out)
    begin, end = recording.header.marks
    assert (begin.kind, end.kind) == (START, END)
    assert begin.details["command"][:2] == ["sh", "-c"] and end.details["status"] == 7
    assert end.at - begin.at == pytest.approx(end.details["elapsed_s"], abs=0.05)
    frames = list(recording.frames())
    assert frames[0].at - frames[0].window_s <= begin.at + 0.001
    assert frames[-1].at >= end.at - 0.011, "the last frame ends with the command, except for a tick of /proc/stat"
    header = json.loads(meshmark("replay", out, "--json").stdout.splitlines()[0])
    assert [m["kind"] for m in header["marks"]] == ["start", "end"]


def test_the_summary_states_the_use_and_the_cost(tmp_path: Path) -> None:
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    completed = recorded(tmp_path / "r.parquet", sys.executable, "-c", spin)
    assert completed.returncode == 0
    assert re.search(r"^the command took \d", completed.stderr, re.M)
    assert re.search(r"^cpu\.busy +[\d.]+ % +[\d.]+ % ", completed.stderr, re.M)
    assert re.search(r"^the recorder used [\d.]+ % of \d+ CPUs?$", completed.stderr, re.M)
    used_s = sum(RecordingFile(tmp_path / "r.parquet").header.marks[1].details[k] for k in ("user_s", "system_s"))
    assert 0.3 <= used_s < 3


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["./missing"], 127, "found no ./missing"),
        (["no-such-program-anywhere"], 127, "in PATH"),
        (["./plain"], 126, "not executable"),
        (["./text"], 126, "Exec format error"),
        ([], 2, "COMMAND: missing"),
    ],
)
def test_a_command_that_cannot_start_leaves_no_file(words: list[str], status: int, text: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    (tmp_path / "text").write_text("not a program\n")
    (tmp_path / "text").chmod(0o755)
    completed = recorded(tmp_path / "r.parquet", *words, cwd=tmp_path)
    assert completed.returncode == status
    assert text in completed.stderr and len(completed.stderr.splitlines()) <= 3
    assert not list(tmp_path.glob("r.parquet*"))


@pytest.mark.parametrize("options", [["--duration", "1s"], ["--on", "gs1280-4"], ["--root", "/"]])
def test_options_without_a_meaning_for_a_command_are_refused(options: list[str], tmp_path: Path) -> None:
    completed = recorded(tmp_path / "r.parquet", "true", options=tuple(options))
    assert completed.returncode == 2 and completed.stderr.startswith(
        f"meshmark: error: {options[0]}: found with COMMAND"
    )
    without = meshmark("record", "--out", tmp_path / "r.parquet", "--margin", "1s")
    assert without.returncode == 2 and "--margin: found without COMMAND" in without.stderr


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),  # shorter than a frame
        ("kill -KILL $$", 137),
        ("exec 0<&- 1>&- 2>&-; exit 5", 5),
        ("setsid sleep 60 >/dev/null 2>&1 & echo $!", 0),  # a daemon outlives the command
        ("for i in $(seq 100); do /bin/true & done; wait", 0),
    ],
)
def test_whatever_the_command_does_the_recording_is_complete(script: str, status: int, tmp_path: Path) -> None:
    completed = recorded(tmp_path / "r.parquet", "sh", "-c", script, options=("--no-canary",))
    assert completed.returncode == status, completed.stderr
    recording = RecordingFile(tmp_path / "r.parquet")
    assert recording.count() >= 1 and [m.kind for m in recording.header.marks] == [START, END]
    assert recording.header.marks[1].details["status"] == status
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
    if completed.stdout:
        daemon = int(completed.stdout)
        assert alive(daemon)
        os.kill(daemon, signal.SIGKILL)


def test_an_orphan_that_ended_counts(tmp_path: Path) -> None:
    orphan = tmp_path / "orphan.sh"
    spin = "import time\nwhile time.process_time() < 0.4: pass"
    orphan.write_text(f"{sys.executable} -c '{spin}'\ntouch {tmp_path}/done\n")
    script = f"(sh {orphan} &) ; while [ ! -e {tmp_path}/done ]; do sleep 0.1; done; sleep 0.3"
    assert recorded(tmp_path / "r.parquet", "sh", "-c", script).returncode == 0
    end = RecordingFile(tmp_path / "r.parquet").header.marks[1]
    assert end.details["user_s"] + end.details["system_s"] >= 0.4


def test_secrets_of_the_command_line_are_not_recorded(tmp_path: Path) -> None:
    completed = recorded(tmp_path / "r.parquet", "env", "HF_TOKEN=hf_abcdef", "echo", "--api-key", "sk-abcdef")
    assert completed.stdout == "--api-key sk-abcdef\n"
    words = RecordingFile(tmp_path / "r.parquet").header.marks[0].details["command"]
    assert words == ["env", "HF_TOKEN=…", "echo", "--api-key", "…"]


def test_a_margin_is_recorded_before_and_after(tmp_path: Path) -> None:
    assert recorded(tmp_path / "r.parquet", "true", options=(*QUICK, "--margin", "300ms")).returncode == 0
    recording = RecordingFile(tmp_path / "r.parquet")
    begin, end = recording.header.marks
    frames = list(recording.frames())
    assert begin.at - (frames[0].at - frames[0].window_s) >= 0.29 and frames[-1].at - end.at >= 0.27


HANDLER = """
import signal, sys, time
count = 0
def on_signal(number, frame):
    global count
    count += 1
    signal.setitimer(signal.ITIMER_REAL, 0.5)
signal.signal(signal.SIGINT, on_signal)
signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGALRM, lambda *_: sys.exit(40 + count))
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_recorder_reaches_the_command_once(number: signal.Signals, tmp_path: Path) -> None:
    child = start("record", *QUICK, "--out", tmp_path / "r.parquet", "--", sys.executable, "-c", HANDLER)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode == 41
    assert RecordingFile(tmp_path / "r.parquet").header.marks[1].details["status"] == 41


# Signals that arrive together count once. A command that Ctrl-C does not reach shows whether it is passed on.
OUT_OF_REACH = "import os\nos.setpgid(0, 0)\n" + HANDLER.replace(
    "print(", "signal.setitimer(signal.ITIMER_REAL, 1)\nprint("
)


@pytest.mark.parametrize(("script", "status"), [(HANDLER, 41), (OUT_OF_REACH, 40)])
def test_ctrl_c_in_a_terminal_reaches_the_command_once(script: str, status: int, tmp_path: Path) -> None:
    words = command("record", *QUICK, "--out", tmp_path / "r.parquet", "--", sys.executable, "-c", script)
    terminal = f"import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn({words!r})))"
    with subprocess.Popen(
        [sys.executable, "-c", terminal], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        while b"ready" not in child.stdout.readline():
            pass
        child.stdin.write(b"\x03")
        child.stdin.flush()
        child.stdout.read()
    assert child.returncode == status
    assert RecordingFile(tmp_path / "r.parquet").header.marks[1].details["status"] == status


def test_a_killed_recorder_leaves_the_command_and_the_frames(tmp_path: Path) -> None:
    script = f"echo $$; sleep 60 & wait; echo survived > {tmp_path}/survived"
    child = start("record", *QUICK, "--out", tmp_path / "r.parquet", "--", "sh", "-c", script)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    part = tmp_path / "r.parquet.part"

    def has_frames() -> bool:
        try:
            return RecordingFile(part).count() > 10
        except RecordingError:
            return False

    assert until(has_frames)
    child.kill()
    child.wait()
    assert alive(pid)
    subprocess.run(["pkill", "-P", str(pid)], check=True)  # the sleep of this shell only
    assert until((tmp_path / "survived").exists)
    (begin,) = RecordingFile(part).header.marks
    assert begin.kind == START and begin.details["pid"] == pid


def test_the_live_page_is_open_while_a_command_runs(tmp_path: Path) -> None:
    script = f"while ! [ -e {tmp_path}/stop ]; do sleep 0.05; done; echo from the command; exit 9"
    with start("watch", "--web", "--port", "0", *QUICK, "--", "sh", "-c", script) as child:
        assert child.stderr is not None
        address = child.stderr.readline().strip()
        assert listening(address)
        (tmp_path / "stop").touch()
        stdout, stderr = child.communicate(timeout=60)
    assert (child.returncode, stdout) == (9, "from the command\n")
    assert "status 9" in stderr and re.search(r"^the recorder used [\d.]+ %", stderr, re.M)
    assert not listening(address)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--", "true"], 2, "COMMAND: found without a terminal for the map, allowed with one or with --web"),
        (["--web", "--"], 2, "COMMAND: missing after --"),
        (["--web", "--json", "--", "true"], 2, "--json: found with COMMAND"),
        (["--web", "--", "no-such-program-anywhere"], 127, "found no no-such-program-anywhere in PATH"),
        (["--web", "--port", "0", "--host", "nowhere.invalid", "--", "true"], 2, "--port: nowhere.invalid"),
    ],
)
def test_a_command_that_cannot_be_watched_is_not_started(words: list[str], status: int, text: str) -> None:
    completed = meshmark("watch", *words)
    assert completed.returncode == status and text in completed.stderr
