"""Counts starts that do not end: of `survey`, `measure`, `experiment` and `fleet check`, with a store of 400 runs.

    bench/starts.py [--starts 1000] [--limit 120] [--only survey,measure,experiment,fleet]

Until November 2026, one survey in ten hung forever at its first step once the store had some fifty runs: processes
were forked while other threads held locks of the interpreter. An empty store hid that, since nothing had started
threads. Every start here is the whole command with one measurement of 0.1 s. The store is renewed every 100 starts,
so that its size stays between 400 and 500 runs. A start that takes longer than the limit is killed and counted as
hung.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from results import add_row, bench_parser, recording  # noqa: E402

from meshmark.machine.identity import identity  # noqa: E402
from support.store_of_runs import fill  # type: ignore[import-not-found]  # noqa: E402

SPEC: Final = 'name = "clock"\nsummary = "one step"\n[[step]]\ninstrument = "clock"\noptions = { budget = "0.1s" }\n'
RENEWED: Final = 100
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "survey": ("survey", "--spec", "clock.toml", "--out", "out"),
    "measure": ("measure", "clock", "--budget", "0.1s"),
    "experiment": ("experiment", "A=1", "A=2", "--max-pairs", "2", "--budget", "60s", "--", "true"),
    "fleet": ("fleet", "check", "out", "--engine", "local", "--beside", "--spec", "clock.toml"),
}


def ended(words: tuple[str, ...], folder: Path, limit_s: float) -> tuple[int | None, str]:
    """Return the exit status of a command and its stderr; None if it was killed at the limit."""
    env = os.environ | {"XDG_DATA_HOME": str(folder / "data")}
    process = subprocess.Popen(
        [sys.executable, "-m", "meshmark", *words],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        error_text = process.communicate(timeout=limit_s)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, error_text


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=120, help="seconds")
    parser.add_argument("--only", default=",".join(COMMANDS))
    options = parser.parse_args()
    with recording("Starts", options), tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fill(folder / "full", identity()["id"])
        (folder / "clock.toml").write_text(SPEC)
        for name in options.only.split(","):
            hung_count = failed = 0
            longest = 0.0
            start_s = time.monotonic()
            for number in range(options.starts):
                if number % RENEWED == 0:
                    shutil.rmtree(folder / "data", ignore_errors=True)
                    shutil.copytree(folder / "full", folder / "data")
                start = time.monotonic()
                status, error_text = ended(COMMANDS[name], folder, options.limit)
                longest = max(longest, time.monotonic() - start)
                hung_count += status is None
                if status:
                    failed += 1
                    print(f"{name}: start {number + 1}: status {status}: {error_text.strip()[-200:]}", flush=True)
                shutil.rmtree(folder / "out", ignore_errors=True)
                if (number + 1) % RENEWED == 0 or number + 1 == options.starts:
                    counts = f"{name}: {number + 1} starts, {hung_count} hung, {failed} failed"
                    print(f"{counts}; longest {longest:.1f} s, all {time.monotonic() - start_s:.0f} s", flush=True)
            add_row(
                f"starts of `{name}` with 400 runs in the store that hung or failed",
                f"of {options.starts:,}",
                hung_count + failed,
                limits=(None, 0),
                notes=f"longest {longest:.1f} s, all {time.monotonic() - start_s:.0f} s",
            )


if __name__ == "__main__":
    main()
