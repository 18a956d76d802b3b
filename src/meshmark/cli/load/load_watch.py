"""Runs a recorder in a separate process during `meshmark load run --watch`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from meshmark import process
from meshmark.cli.console import say
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.store.files import make_folder

WatchOption = Annotated[
    bool, typer.Option("--watch", help="also record the machine at 10 Hz, for the chart of load show")
]
RATE_HZ: Final = 10.0
_STARTS_S: Final = 60.0  # limit for the start of the recorder: Python starts slowly on a busy machine
_ENDS_S: Final = 120.0  # limit for its end: it converts a long recording to Parquet


@contextlib.contextmanager
def watched(folder: Path, enabled: bool = True) -> Iterator[None]:
    """Record this machine into the folder of a run while the context is active; do nothing if not `enabled`.

    Failures of a running recorder are reported as warnings and do not affect the run.

    Raises:
        UsageError: The folder already contains a run.
        MeshmarkError: The recorder does not start.
    """
    from meshmark.load.scenario.journal import JOURNAL
    from meshmark.load.scenario.recorded import RECORDING

    if not enabled:
        yield
        return
    if (folder / JOURNAL).exists():
        raise UsageError(f"{folder}: contains a run already", "name another folder with --out")
    try:
        make_folder(folder)
    except OSError as error:
        raise MeshmarkError(f"--watch: {quoted(folder)}: {error.strerror or error}") from error
    out = folder / RECORDING
    part = out.with_name(out.name + ".part")
    argv = [sys.executable, "-m", "meshmark", "record", "--rate", f"{RATE_HZ:g}", "--out", str(out)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stderr:

        def last_message() -> str:
            stderr.seek(0)
            lines = [line for line in stderr.read().splitlines() if line.strip() and not line.startswith("hint:")]
            messages = lines or [f"it exited with status {recorder.returncode}"]
            return messages[-1].removeprefix("meshmark: ").removeprefix("error: ")[:300]

        recorder = process.start(
            argv,
            process.TERMINATED_WITH_PARENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            start_s = time.monotonic()
            # The file appears once the sampler runs.
            while not part.exists():
                if recorder.poll() is not None:
                    raise MeshmarkError(f"--watch: {last_message()}")
                if time.monotonic() - start_s > _STARTS_S:
                    raise MeshmarkError(f"--watch: the recorder did not start within {_STARTS_S:g} s")
                time.sleep(0.02)
            yield
            time.sleep(1.5 / RATE_HZ)  # so that the last sampling window covers the end of the run
        finally:
            with contextlib.suppress(ProcessLookupError):
                recorder.terminate()
            try:
                recorder.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                recorder.kill()
                recorder.wait()
            if recorder.returncode != 0 and sys.exc_info()[0] is None:
                say(f"warning: --watch: {last_message()}")
