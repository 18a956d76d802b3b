"""How the speed of a command and the use of the machine change with its number of threads, from recordings of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.errors import MeshmarkError, UsageError
from meshmark.watch.frames import USE
from meshmark.watch.recorder.summary import summarise
from meshmark.watch.recorder.window import command_window
from meshmark.watch.recording import RecordingFile


@dataclass(frozen=True, slots=True)
class ThreadPoint:
    """A recorded command with some number of threads.

    Attributes:
        elapsed_s: How long it took.
        speed_up: Time of the run with the fewest threads over this time.
        use: Mean use of the components of each class meanwhile, as a share; classes whose use is unknown are missing.
    """

    threads: int
    elapsed_s: float
    speed_up: float
    use: Mapping[str, float]


def speed_up(recordings: Sequence[RecordingFile], threads: Sequence[int]) -> list[ThreadPoint]:
    """Return a point for each recording, in the order of the number of threads.

    Args:
        recordings: Recordings of one command each.
        threads: Number of threads of each.

    Raises:
        UsageError: There are fewer than two recordings, or not one number for each.
        MeshmarkError: A recording has no command that ended with status 0.
    """
    if len(recordings) < 2:
        raise UsageError("--threads: found one recording; allowed: two or more, with different numbers of threads")
    if len(threads) != len(recordings) or len(set(threads)) != len(threads) or min(threads) < 1:
        raise UsageError(
            f"--threads: found {','.join(map(str, threads))}; allowed: a different number for each of the "
            f"{len(recordings)} recordings, such as {','.join(str(2**n) for n in range(len(recordings)))}"
        )
    measured = sorted(zip(threads, map(_elapsed_and_use, recordings), strict=True), key=lambda point: point[0])
    first_s = measured[0][1][0]
    return [ThreadPoint(count, elapsed_s, first_s / elapsed_s, use) for count, (elapsed_s, use) in measured]


def _elapsed_and_use(recording: RecordingFile) -> tuple[float, dict[str, float]]:
    window = command_window(recording.header.marks)
    end = window.end_mark if window else None
    elapsed_s = end.number("elapsed_s") if end else None
    if window is None or end is None or not elapsed_s or end.number("status"):
        state = "no marked command" if window is None else "a command that did not end, or failed"
        raise MeshmarkError(
            f"--threads: found {state} in {recording.path}", "meshmark record --out FILE -- COMMAND marks one"
        )
    summary = summarise(recording.header, recording.frames(), window)
    means = {m.metric.name: m.mean for m in summary.metrics}
    use = {kind: means[name] for kind in USE if (name := recording.header.use.get(kind, "")) in means}
    return elapsed_s, use
