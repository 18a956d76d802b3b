"""Runs in a separate mount namespace: one command after the other on a disk with few free pages.

usage: small_disk.py FOLDER COMMAND [--pages N]; prints a line of JSON per case. FOLDER holds the input of the
commands.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from started import Ended, Place

from meshmark.store.files import ASIDE
from meshmark.store.store import Store

PAGE = 4096
FREE_PAGES = range(13)
SIZE = 16 << 20
OLD = b"what was there before\n"
FULL = ("No space left", "cannot write", "cannot be written", "the run was interrupted")
ENOUGH = ("--budget", "60s", "--interval", "60")


@dataclass(frozen=True)
class Case:
    """A command that writes to the disk.

    Args:
        words: Returns the words of the command for the folder of the disk; called for every run.
        old: Files that exist before, and afterwards are either unchanged or completely new.
        again: Returns the words for the run with free space; None: the same words.
        whole: Raises an exception if a file under its final name is incomplete.
    """

    words: Callable[[Path], list[str]]
    old: Sequence[str] = ()
    again: Callable[[Path], list[str]] | None = None
    whole: Callable[[Path], None] = lambda disk: None


def _json_lines(name: str) -> Callable[[Path], None]:
    def whole(disk: Path) -> None:
        for line in (disk / name).read_text().splitlines():
            json.loads(line)

    return whole


def _ends(name: str, end: bytes) -> Callable[[Path], None]:
    def whole(disk: Path) -> None:
        assert (disk / name).read_bytes().rstrip().endswith(end), name

    return whole


def _report_whole(disk: Path) -> None:
    for path in disk.glob("rep/**/*"):
        end = {".html": b"</html>", ".json": b"}", ".svg": b"</svg>", ".png": b"IEND\xaeB`\x82"}.get(path.suffix, b"")
        assert not path.is_file() or ASIDE.fullmatch(path.name) or path.read_bytes().rstrip().endswith(end), path


def _recording_whole(disk: Path) -> None:
    from meshmark.watch.recording import RecordingFile

    for path in disk.glob("rec*.parquet*"):
        if path.stat().st_size:
            frames = [f.seq for f in RecordingFile(path).frames()]
            assert not frames or frames == [*range(frames[0], frames[0] + len(frames))], path


def _capture_whole(disk: Path) -> None:
    from meshmark.machine.capture import open_machine

    open_machine(str(disk / "capture.tar.gz"))


def _load_whole(disk: Path) -> None:
    from meshmark.load.scenario.journal import JOURNAL, read_run

    for folder in disk.glob("load*"):
        if (folder / JOURNAL).exists():
            read_run(folder)


def _again(before: list[str], folder: str, *resumed: str) -> Callable[[Path], list[str]]:
    """Return the words that resume the command if there is something to resume."""

    def words(disk: Path) -> list[str]:
        return [
            str(disk / x) if x.startswith("./") else x
            for x in (resumed if (disk / folder / "plan.json").exists() else before)
        ]

    return words


def _measure_again(disk: Path) -> list[str]:
    if list(disk.glob("store/.measuring/*/plan.json")):
        return ["measure", "--resume", "--store", str(disk / "store")]
    return CASES["measure"].words(disk)


def on_disk(*words: str) -> Callable[[Path], list[str]]:
    return lambda disk: [str(disk / x) if x.startswith("./") else x for x in words]


_SURVEY = ["survey", "--spec", "spec.toml", "--out", "./run", "--store", "./store"]
_ADVISE = [
    "advise",
    "--out",
    "./adv",
    "--no-store",
    "--policies",
    "none,compact",
    "--memory",
    "default",
    "--pages",
    "default",
    "--budget",
    "1s",
    "--",
    "sleep",
    "0.02",
]
CASES = {
    "measure": Case(
        on_disk(
            "measure",
            "bandwidth",
            "--kernel",
            "copy,triad",
            "--footprint",
            "4MiB",
            "--threads",
            "1",
            *ENOUGH,
            "--store",
            "./store",
        ),
        again=_measure_again,
    ),
    "survey": Case(
        on_disk(*_SURVEY), again=_again(_SURVEY, "run", "survey", "--resume", "--out", "./run", "--store", "./store")
    ),
    "store export": Case(
        on_disk("store", "export", "--store", "full", "--out", "./out.jsonl"),
        ("out.jsonl",),
        whole=_json_lines("out.jsonl"),
    ),
    "store import": Case(on_disk("store", "import", "in.jsonl", "--store", "./store")),
    "report": Case(on_disk("report", "run", "--out", "./rep"), whole=_report_whole),
    "record": Case(
        on_disk("record", "--rate", "20", "--duration", "1", "--no-canary", "--out", "./rec.parquet"),
        again=on_disk("record", "--rate", "20", "--duration", "1", "--no-canary", "--out", "./rec2.parquet"),
        whole=_recording_whole,
    ),
    "load run": Case(
        on_disk("load", "run", "sc.toml", "--out", "./load", "--no-store"),
        again=on_disk("load", "run", "sc.toml", "--out", "./load2", "--no-store"),
        whole=_load_whole,
    ),
    "model show": Case(
        on_disk("model", "show", "gs1280-64", "--svg", "./x.svg"), ("x.svg",), whole=_ends("x.svg", b"</svg>")
    ),
    "model measure": Case(
        on_disk("model", "measure", "hot_spot", "gs1280-4", "--chains", "1..2", "--frames", "./f.jsonl", "--no-store"),
        ("f.jsonl",),
        whole=_json_lines("f.jsonl"),
    ),
    "machine capture": Case(
        on_disk("machine", "capture", "./capture.tar.gz"), ("capture.tar.gz",), whole=_capture_whole
    ),
    "advise": Case(
        on_disk(*_ADVISE), again=_again(_ADVISE, "adv", "advise", "--resume", "./adv", "--no-store", "--budget", "1s")
    ),
}


def mount(folder: Path) -> None:
    """Mount a tmpfs, which disappears with this process: its mount namespace is private."""
    folder.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode()):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(folder))


def fill(disk: Path, pages: int) -> None:
    """Fill the disk except for so many pages."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize // PAGE
    with (disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, (free - pages) * PAGE)


def full(case: Case, disk: Path, done: Ended) -> list[str]:
    """Return the problems of a command that ran on a full disk."""
    problems = []
    if done.status not in {0, 1, 2}:
        problems.append(f"status {done.status}: {done.err[-400:]!r}")
    if done.status and not (done.complaint and any(x in done.err for x in FULL)):
        problems.append(f"says {done.err[-400:]!r}")
    for name in case.old:
        data = (disk / name).read_bytes()
        if done.status and data != OLD:
            problems.append(f"{name} is neither old nor new: {len(data)} B")
    try:
        if not case.old or done.status == 0:
            case.whole(disk) if (disk / case.words(disk)[-1]).exists() or not case.old else None
    except Exception as error:
        problems.append(f"torn: {type(error).__name__}: {error}")
    if corrupt := [f"{p.name}: {error}" for p, error in Store(disk / "store").verify() if error]:
        problems.append(f"in the store: {corrupt}")
    if files := [str(p) for p in disk.rglob(".*") if ASIDE.fullmatch(p.name)]:
        problems.append(f"leaves {files}")
    return problems


def tried(name: str, folder: Path, pages: int) -> dict[str, Any]:
    """Return the result of one command with so many free pages, and then with space."""
    case, disk = CASES[name], folder / f"disk-{name.replace(' ', '-')}-{pages}"
    place = Place(folder, {"XDG_DATA_HOME": f"{disk}.data"}, log=disk.name)
    mount(disk)
    for old in case.old:
        (disk / old).write_bytes(OLD)
    fill(disk, pages)
    completed = place.run(case.words(disk))
    problems = full(case, disk, completed)
    (disk / "filler").unlink()
    final = place.run((case.again or case.words)(disk)) if completed.status else completed
    if final.status:
        problems.append(f"with space again: status {final.status}: {final.err[-400:]!r}")
    try:
        case.whole(disk)
    except Exception as error:
        problems.append(f"torn in the end: {type(error).__name__}: {error}")
    return {"name": name, "pages": pages, "status": completed.status, "said": completed.complaint, "wrong": problems}


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    with ThreadPoolExecutor(2) as pool:
        for case in pool.map(lambda n: tried(name, folder, n), [int(sys.argv[4])] if sys.argv[3:] else FREE_PAGES):
            print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
