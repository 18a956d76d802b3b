"""`meshmark load run --watch`: the monitor's recorder beside a run, as a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from meshmark.cli.console import say
from meshmark.errors import MeshmarkError, UsageError
from meshmark.native import end_with_parent

WatchOption = Annotated[
    bool, typer.Option("--watch", help="record the machine meanwhile, for the chart of load show (10 Hz)")
]
RATE_HZ: Final = 10.0
_STARTS_S: Final = 60.0  # a busy machine takes its time to start Python
_ENDS_S: Final = 120.0  # making Parquet of a long recording


@contextlib.contextmanager
def watched(folder: Path, wanted: bool = True) -> Iterator[None]:
    """Records this machine into a run's folder for as long as the `with` lasts; does nothing where it is not wanted.

    Raises:
        UsageError: a run lies there already.
        MeshmarkError: the recorder does not start. What goes wrong later is said, and leaves the run as it is.
    """
    from meshmark.load.journal import JOURNAL
    from meshmark.load.recorded import RECORDING

    if not wanted:
        yield
        return
    if (folder / JOURNAL).exists():
        raise UsageError(f"{folder}: a run lies there already", "name another folder with --out")
    out = folder / RECORDING
    words = [sys.executable, "-m", "meshmark", "record", "--rate", f"{RATE_HZ:g}", "--out", str(out)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as talk:

        def last_words() -> str:
            talk.seek(0)
            lines = [x for x in talk.read().splitlines() if x.strip() and not x.startswith("hint:")]
            said = lines or [f"it ended with status {recorder.returncode}"]
            return said[-1].removeprefix("meshmark: ").removeprefix("error: ")[:300]

        recorder = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=talk,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            began = time.monotonic()
            # It says so when the sampler runs and signals end it whole. Read without moving the place where it writes.
            while b"Ctrl-C ends it" not in os.pread(talk.fileno(), 4096, 0):
                if recorder.poll() is not None:
                    raise MeshmarkError(f"--watch: {last_words()}")
                if time.monotonic() - began > _STARTS_S:
                    raise MeshmarkError(f"--watch: the recorder did not start within {_STARTS_S:g} s")
                time.sleep(0.02)
            yield
            time.sleep(1.5 / RATE_HZ)  # the last window of the run ends after it
        finally:
            with contextlib.suppress(ProcessLookupError):
                recorder.terminate()
            try:
                recorder.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                recorder.kill()
                recorder.wait()
            if recorder.returncode != 0 and sys.exc_info()[0] is None:
                say(f"warning: --watch: {last_words()}")
