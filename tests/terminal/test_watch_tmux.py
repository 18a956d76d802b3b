"""The terminal view in a real terminal: tmux shows it, keys move it, and it restores the terminal when it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import COMMAND, meshmark
from support.waiting import until

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
MESHMARK = shlex.join(COMMAND)


class Terminal:
    """A separate tmux server with one window."""

    def __init__(self, folder: Path, columns: int, lines: int) -> None:
        self.socket = str(folder / "tmux")
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "sh", env=environment)

    def tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        assert TMUX is not None
        completed = subprocess.run(
            [TMUX, "-S", self.socket, *words], capture_output=True, text=True, check=True, env=env
        )
        return completed.stdout

    def close(self) -> None:
        """Close the terminal, which hangs up."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.tmux("kill-server")  # it fails if the terminal is closed already

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def shown(self, colours: bool = False) -> str:
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def wait_for(self, text: str, seconds: float = 20.0) -> str:
        screen = ""

        def there() -> bool:
            nonlocal screen
            screen = self.shown()
            return text in screen

        assert until(there, seconds), f"'{text}' never came:\n{screen}"
        return screen


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    term = Terminal(tmp_path, 110, 50)
    yield term
    term.close()


def processes_with(argument: str) -> list[str]:
    """Return the command lines that contain an argument, such as a rate that no other test requests."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_text(encoding="utf-8").split("\0")
            if argument in words:
                lines.append(shlex.join(words))
    return lines


def test_a_simulated_hot_spot_is_seen_held_and_left(terminal: Terminal) -> None:
    terminal.keys(f"{MESHMARK} watch --on gs1280-16 --frames 400 --window 1us; echo LEFT-$?", "Enter")
    screen = terminal.wait_for("memory bound: memory 0.0, memory 0.1")
    assert "gs1280-16  model" in screen and "▀" in screen
    terminal.wait_for("100 100")
    assert "\x1b[" in terminal.shown(colours=True)
    terminal.keys("Space")
    terminal.wait_for("paused, ")
    terminal.keys("Left", "Left")
    terminal.wait_for("frames back")
    terminal.keys("r")
    terminal.wait_for("10 %")
    terminal.keys("n")  # shows names instead of numbers
    assert until(lambda: "100 100" not in terminal.shown())
    terminal.keys("q")
    terminal.wait_for("LEFT-0")


def test_this_machine_is_live_and_the_sampler_goes_with_the_view(terminal: Terminal) -> None:
    terminal.keys(f"{MESHMARK} watch --rate 9.75; echo LEFT-$?", "Enter")
    terminal.wait_for("live")
    terminal.wait_for("not available here")
    assert processes_with("9.75")
    terminal.keys("q")
    terminal.wait_for("LEFT-0")
    assert not processes_with("9.75")


def test_the_map_closes_with_its_command_whose_output_is_printed(terminal: Terminal, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    script = f"echo from the command; echo its error >&2; until [ -e {stop} ]; do sleep 0.05; done; echo last; exit 9"
    terminal.keys(f"clear; {MESHMARK} watch --rate 8 --no-canary -- sh -c '{script}'; echo LEFT-$?", "Enter")
    terminal.wait_for("last output of the command:\n from the command\n its error")
    stop.touch()
    screen = terminal.wait_for("LEFT-9")
    assert "from the command\nits error\nlast\nthe command took" in screen
    assert "cpu.busy" in screen and "continues" not in screen


def test_a_command_outlives_a_map_that_is_closed(terminal: Terminal, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    script = f"echo first; until [ -e {stop} ]; do sleep 0.05; done; echo last; exit 9"
    terminal.keys(f"clear; {MESHMARK} watch --rate 8 --no-canary -- sh -c '{script}'; echo LEFT-$?", "Enter")
    terminal.wait_for("last output of the command")
    terminal.keys("q")
    terminal.wait_for("the map is closed; the command continues\nfirst")
    stop.touch()
    assert "first\nlast\nthe command took" in terminal.wait_for("LEFT-9")


def test_ctrl_c_interrupts_the_processes_of_the_command(terminal: Terminal) -> None:
    # A shell handles the signal only when its `sleep` has ended, which must therefore receive it, too.
    script = 'trap "echo interrupted; exit 5" INT; echo ready; sleep 1000'
    terminal.keys(f"clear; {MESHMARK} watch --rate 8 --no-canary -- sh -c '{script}'; echo LEFT-$?", "Enter")
    terminal.wait_for("last output of the command:\n ready")
    terminal.keys("C-c")
    screen = terminal.wait_for("LEFT-5")
    assert screen.count("interrupted\n") == 1


def test_a_redirected_output_is_not_printed(terminal: Terminal, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = "echo to the file; echo to the terminal >&2"
    terminal.keys(f"clear; {MESHMARK} watch --rate 8 --no-canary -- sh -c '{script}' >{out}; echo LEFT-$?", "Enter")
    screen = terminal.wait_for("LEFT-0")
    assert out.read_text(encoding="utf-8") == "to the file\n" and "to the terminal\nthe command took" in screen


@pytest.mark.parametrize("shell", ["exec ", ""])  # a terminal that is closed signals the leader of the session only
def test_a_closed_terminal_ends_the_map_and_its_command(shell: str, terminal: Terminal, tmp_path: Path) -> None:
    rate, output = "9.25" if shell else "9.5", tmp_path / "output"
    script = f'trap "echo hung up >{output}; exit" HUP; echo ready; sleep 1000 & wait'
    terminal.keys(f"clear; {shell}{MESHMARK} watch --rate {rate} --no-canary -- sh -c '{script}'", "Enter")
    terminal.wait_for("last output of the command:\n ready")
    assert processes_with(rate)
    terminal.close()
    assert until(output.exists)
    assert until(lambda: not processes_with(rate)), processes_with(rate)


def test_a_closed_terminal_ends_the_command_of_a_recording(terminal: Terminal, tmp_path: Path) -> None:
    recording, output = tmp_path / "recording.parquet", tmp_path / "output"
    script = f'trap "echo hung up >{output}; exit 3" HUP; echo ready; sleep 1000 & wait'
    terminal.keys(f"clear; exec {MESHMARK} record --out {recording} --no-canary -- sh -c '{script}'", "Enter")
    terminal.wait_for("ready\n")
    terminal.close()
    assert until(output.exists)
    assert until(lambda: not processes_with(str(recording)))
    replayed = meshmark("replay", recording, "--window", "command", "--coverage")  # its end was recorded, too
    assert replayed.returncode == 0, replayed.stderr
