"""Test the standard streams of the command (closed, full, in another encoding) and the signals that end it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import meshmark
from meshmark.store.export import to_csv
from meshmark.store.store import Store
from support.cli import COMMAND, command, python, start
from support.made_run import bandwidth, latency
from support.waiting import until

# With these, Python does not replace the C locale by UTF-8.
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def test_every_text_file_says_its_encoding() -> None:
    """The encoding of a locale differs from machine to machine; the linter finds only half of the calls without one."""
    call_without_encoding = re.compile(
        r"\.read_text\(\)|\.read_text\(errors|text=True|\.write_text\((?![^\n]*encoding=)"
    )
    lines_without_encoding = [
        f"{path.name}:{number}"
        for path in Path(meshmark.__file__).parent.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if call_without_encoding.search(line)
    ]
    assert not lines_without_encoding


def shell(line: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", line.replace("meshmark", shlex.join(COMMAND))],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "", **(env or {})},
        cwd=cwd,
    )


@pytest.mark.parametrize("line", ["meshmark list", "meshmark measure --help", "meshmark --help", "meshmark version"])
def test_a_closed_or_full_standard_output_is_an_error(line: str) -> None:
    full = shell(f"{line} >/dev/full")
    assert (full.returncode, full.stderr) == (1, b"meshmark: error: standard output: No space left on device\n")
    closed = shell(f"{line} >&-")
    assert (closed.returncode, closed.stderr) == (1, b"meshmark: error: standard output is closed\n")


def test_errors_never_reach_standard_output() -> None:
    completed = shell("meshmark list nonsense 2>&-")
    assert (completed.returncode, completed.stdout) == (2, b"")


def test_a_reader_that_leaves_is_no_news() -> None:
    completed = shell("meshmark model list --json | head -c 1; exit ${PIPESTATUS[0]}")
    assert completed.stderr == b""


@pytest.mark.parametrize(
    "line",
    [
        "meshmark list machines",
        "meshmark model show gs1280-4",
        "meshmark model validate --no-page A01",
        "meshmark measure latency --on gs1280-4 --footprint 1MiB --no-store",
        "meshmark machine show",
        "meshmark list instruments",
        "meshmark load kernels",
        "meshmark measure --help",
        "meshmark survey --spec spec.toml",
        "meshmark load run scenario.toml",
        "meshmark store export --format csv",
        "meshmark list policies",
    ],
)
def test_another_locale_replaces_what_it_lacks(line: str, tmp_path: Path) -> None:
    """Files are UTF-8 in every locale: the specification and the scenario contain names that ASCII cannot encode."""
    (tmp_path / "spec.toml").write_text('name = "ü"\n[[step]]\ninstrument = "clock"\n', encoding="utf-8")
    (tmp_path / "scenario.toml").write_text('[[program]]\nname = "ü"\n', encoding="utf-8")
    completed = shell(line, {**ASCII, "XDG_DATA_HOME": str(tmp_path / "data")}, tmp_path)
    assert b"Unicode" not in completed.stderr
    assert b"codec" not in completed.stderr
    assert completed.returncode in ((0, 77) if ".toml" not in line else (2,)), completed.stderr
    completed.stdout.decode("ascii")
    completed.stderr.decode("ascii")


def test_sigterm_says_and_leaves_what_ctrl_c_does(tmp_path: Path) -> None:
    for number, word in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")):
        temporary = tmp_path / word.replace(" ", "-")
        temporary.mkdir()
        child = start(
            "measure",
            "latency",
            "--budget",
            "60s",
            "--no-store",
            env={"TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
        )
        assert until(lambda t=temporary: list(t.glob("meshmark-*/journal/*.jsonl")))  # type: ignore[misc]
        child.send_signal(number)
        _, message = child.communicate(timeout=60)
        assert child.returncode == 128 + number
        assert message == f"meshmark: {word}; nothing is stored (--no-store)\n"
        assert not list(temporary.iterdir())


def test_csv_has_the_conditions_of_all_runs(tmp_path: Path) -> None:
    store = Store(tmp_path / "meshmark" / "store")
    store.add("one", "s", [replace(r, conditions={**r.conditions, "note": 'a "b",\nc'}) for r in latency()])
    store.add("two", "s", [replace(r, provenance={**r.provenance, "start": "2026-11-01"}) for r in bandwidth()])
    env = {"XDG_DATA_HOME": str(tmp_path)}
    exported = shell("meshmark store export --format csv", env).stdout.decode()
    assert exported == to_csv(store.rows()) and "note" in exported.splitlines()[0]
    part = shell("meshmark store export --format csv --since 2026-11-01 --until 2026-11-01", env).stdout.decode()
    assert part == to_csv(store.rows(run="two"))


def test_an_ignored_hang_up_stays_ignored() -> None:
    program = (
        "import os, signal; from meshmark.cli.process import end_by_signals; end_by_signals();"
        "os.kill(os.getpid(), signal.SIGHUP); print('here')"
    )
    nohup = ["bash", "-c", "trap '' HUP; exec \"$@\"", "x", sys.executable, "-c", program]
    assert subprocess.run(nohup, capture_output=True, text=True, check=True, timeout=60).stdout == "here\n"


def test_a_limit_of_memory_is_named(tmp_path: Path) -> None:
    for limit_kib in (60_000, 150_000):
        completed = shell(f"ulimit -v {limit_kib}; meshmark store list", {"XDG_DATA_HOME": str(tmp_path)})
        assert b"warning: ulimit -v allows " in completed.stderr and b"Traceback" not in completed.stderr
    assert b"ulimit" not in shell("meshmark list machines").stderr


def test_ctrl_c_while_the_command_is_loaded_is_no_traceback() -> None:
    program = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'meshmark.cli.app': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from meshmark.entry import main; main()"
    )
    completed = python(program, "version")
    assert (completed.returncode, completed.stdout, completed.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("fault", ["os.abort", "lambda: os.kill(os.getpid(), signal.SIGTERM)", "lambda: 1 / 0"])
def test_what_libraries_do_at_their_end_changes_no_status(fault: str) -> None:
    program = (
        "import atexit, os, signal, sys; sys.argv = ['meshmark', 'version']\n"
        f"atexit.register({fault})\n"
        "from meshmark.cli.app import main; main()"
    )
    completed = python(program)
    assert (completed.returncode, completed.stderr) == (0, "") and completed.stdout


def test_a_signal_in_a_destructor_is_not_lost() -> None:
    program = """
import os, signal, sys, time
import meshmark.store.store
class Ended:
    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)
def runs(self):
    Ended()
    time.sleep(60)
meshmark.store.store.Store.runs = runs
sys.argv = ["meshmark", "store", "list"]
from meshmark.cli.app import main
main()
"""
    completed = python(program)
    assert (completed.returncode, completed.stderr) == (128 + signal.SIGTERM, "meshmark: ended by SIGTERM\n")


def test_a_reader_that_has_enough_ends_the_command_quietly() -> None:
    lines = f"{shlex.join(command('list', 'metrics', '--json'))} | head -n 1; echo ${{PIPESTATUS[0]}}"
    completed = subprocess.run(
        ["bash", "-c", f"for i in 1 2 3; do {lines}; done"], capture_output=True, text=True, check=True
    )
    assert completed.stderr == "" and {*completed.stdout.splitlines()[1::2]} <= {"0", "141"}, (
        "all fits into the pipe, or not"
    )


def test_a_user_without_a_home_is_one_line() -> None:
    """The user is not in the password database, as in a container, and HOME is not set."""
    program = (
        "import os, pwd, sys; sys.argv = ['meshmark', *sys.argv[1:]]\n"
        "def none(_): raise KeyError('uid not found')\n"
        "pwd.getpwuid = none\n"
        "import meshmark.cli.app, meshmark.cli.process\n"
        "def leave(status):\n"
        "    import altair\n"  # altair looks up the home directory when it is imported
        "    raise SystemExit(status)\n"
        "meshmark.cli.app.leave = leave; meshmark.cli.app.main()"
    )
    completed = python(program, "store", "list", env={"XDG_DATA_HOME": None, "HOME": None})
    assert completed.returncode == 1
    assert completed.stderr.startswith("meshmark: error: found no home directory")
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", "meshmark: error: no thread can be started"),
        ("raise Exception('Failed to launch worker thread: x')", "meshmark: error: no thread can be started"),
        (
            "raise type('PanicException', (BaseException,), {})('left: 24')",
            "meshmark: error: a library failed: left: 24",
        ),
    ],
)
def test_what_libraries_do_when_limits_are_too_small_is_one_line(fault: str, says: str) -> None:
    """OpenBLAS interrupts this process if no thread can be started; libraries in Rust raise a BaseException."""
    program = f"""
import os, signal, sys, threading
import meshmark.store.store
def refused(self): raise RuntimeError("can't start new thread")
def runs(self):
    threading.Thread.start = refused
    {fault}
meshmark.store.store.Store.runs = runs
sys.argv = ["meshmark", "store", "list"]
from meshmark.cli.app import main
main()
"""
    completed = python(program)
    assert completed.returncode == 1
    assert completed.stderr.startswith(says)
    assert "Traceback" not in completed.stderr


def test_a_signal_at_the_first_moment_is_one_line() -> None:
    """The signal arrives right after the handlers are installed."""
    program = (
        "import os, signal, sys; sys.argv = ['meshmark', 'version']\n"
        "from meshmark.cli import app as cli\n"
        "cli.find_home = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "cli.main()"
    )
    completed = python(program)
    assert (completed.returncode, completed.stderr) == (128 + signal.SIGTERM, "meshmark: ended by SIGTERM\n")


def test_an_import_ends_before_the_command_is_interrupted(tmp_path: Path) -> None:
    """An exception that leaves the initialization of a C++ library aborts the process."""
    (tmp_path / "library.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "try:\n    time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n    os.abort()\n"
        "print('complete', flush=True)\n"
    )
    program = (
        f"import sys, time; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['meshmark', 'version']\n"
        "from meshmark.cli import app as cli\n"
        "def load():\n    import library\n    while True: time.sleep(0.01)\n"
        "cli.find_home = load; cli.main()"
    )
    completed = python(program)
    assert (completed.returncode, completed.stdout) == (128 + signal.SIGTERM, "complete\n")
    assert completed.stderr == "meshmark: ended by SIGTERM\n"


def test_a_child_that_is_not_its_program_yet_says_nothing() -> None:
    """Ctrl-C reaches the child, too, between `fork` and `exec`."""
    program = (
        "import os, signal; from meshmark.cli.process import end_by_signals; end_by_signals()\n"
        "if not (child := os.fork()): os.kill(os.getpid(), signal.SIGINT)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    completed = python(program)
    assert (completed.stdout, completed.stderr) == ("130\n", "")


def test_without_memory_for_an_error_there_is_one_line() -> None:
    program = (
        "import sys; sys.argv = ['meshmark', 'list', 'nonsense']\n"
        "from meshmark.cli import app as cli\n"
        "def fail(_): raise SystemError('error return without exception set')\n"
        "cli.fail = fail; cli.main()"
    )
    completed = python(program)
    assert (completed.returncode, completed.stderr) == (1, "meshmark: error: out of memory\n")
