"""Runs the native programs with sanitizers, by seed, for some seconds, and reports the outcomes and the errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.paths import ROOT

PROGRAMS = Path(os.environ.get("MESHMARK_MUTATION_BIN", ROOT / "build" / "asan" / "bin"))
SECONDS = float(os.environ.get("MESHMARK_MUTATION_SECONDS", "20"))
SEED = int(os.environ.get("MESHMARK_MUTATION_SEED", "1"))
STATUSES = {0, 1, 2, 77}
PATIENCE_S = 20
SANITIZER = 99


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:exitcode={SANITIZER}:log_path={folder}/sanitizer"
        ":max_allocation_size_mb=2048:handle_abort=1",
        "UBSAN_OPTIONS": f"print_stacktrace=1:exitcode={SANITIZER}:log_path={folder}/sanitizer",
        "MESHMARK_LEDGER": f"{folder}/ledger",
        "XDG_CONFIG_HOME": f"{folder}/none",
        "OMP_NUM_THREADS": "2",
    }


def verdict(words: list[str], folder: Path, text: bytes | None, env: dict[str, str], long: bool) -> str:
    """Run a program, and return its outcome: its status, "long", or what is wrong with it."""
    process = subprocess.Popen(
        [PROGRAMS / f"meshmark-{words[0]}", *words[1:]],
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
        stderr=(folder / "err").open("wb"),
        start_new_session=True,
    )
    try:
        process.communicate(text, timeout=2 if long else PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # a request for hours of work must still end after SIGTERM
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "hang: does not end at SIGTERM"
        if not long:
            return "hang"
    messages = (folder / "err").read_bytes()
    reports = b"".join(file.read_bytes() for file in folder.glob("sanitizer*"))
    if process.returncode == SANITIZER or b"Sanitizer" in messages + reports or b"runtime error" in messages + reports:
        return "sanitizer"
    if any(text in messages for text in (b"terminate called", b"Assertion", b"Traceback")):
        return "no error line of ours"
    if long and process.returncode in (-15, 143):
        return "long"
    # A program of a plan may end in any way; the status of the launcher is separate.
    return str(process.returncode) if process.returncode in STATUSES else f"status {process.returncode}"


def tries(seconds: float) -> Iterator[int]:
    end, number = time.monotonic() + seconds, SEED
    while time.monotonic() < end:
        yield number
        number += 1


def run_all(name: str, folder: Path, one: Callable[[int, Path], str]) -> None:
    """Run `one` with seed after seed on each CPU for `SECONDS`, and print how the runs ended; none may end badly."""
    workers = len(os.sched_getaffinity(0))
    counts: Counter[str] = Counter()
    problems: list[str] = []

    def work(worker: int) -> None:
        for number in tries(SECONDS):
            seed = number * workers + worker
            worker_folder = folder / f"{worker}"
            shutil.rmtree(worker_folder, ignore_errors=True)
            worker_folder.mkdir()
            outcome = one(seed, worker_folder)
            counts[outcome] += 1
            if outcome not in {*map(str, STATUSES), "long"}:
                folder_of_failure = folder / f"seed-{seed}"
                if not folder_of_failure.exists():
                    worker_folder.rename(folder_of_failure)
                messages = (folder_of_failure / "err").read_text(errors="replace")[-1500:]
                reports = "".join(f.read_text(errors="replace")[:3000] for f in folder_of_failure.glob("sanitizer*"))
                problems.append(f"{name}, seed {seed}: {outcome}; input in {folder_of_failure}\n{messages}\n{reports}")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    print(f"\n{name}: {counts.total()} runs, " + ", ".join(f"{n} × {outcome}" for outcome, n in sorted(counts.items())))
    assert not problems, f"{len(problems)} of {counts.total()}\n" + "\n".join(problems[:5])
    assert counts.total() > 0
