"""Reads accounting files line by line, also compressed ones and those that are cut off."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, cast

from meshmark.errors import UsageError, quoted
from meshmark.load.queue.accounting.lsf import read_lsf
from meshmark.load.queue.accounting.pbs import read_pbs
from meshmark.load.queue.accounting.slurm import read_sacct
from meshmark.load.queue.accounting.swf import read_swf
from meshmark.load.queue.jobs import JobCollector, JobMix
from meshmark.store.files import open_regular

_GZIP: Final = b"\x1f\x8b"
_LONGEST_LINE: Final = 1 << 20  # bytes; LSF's records contain whole command lines

READERS: Final[Mapping[str, Callable[[Iterator[str], JobCollector], None]]] = {
    "--swf": read_swf,
    "--sacct": read_sacct,
    "--pbs": read_pbs,
    "--lsf": read_lsf,
}


def read_accounting(option: str, path: Path) -> JobMix:
    """Return the jobs of an accounting file.

    Args:
        option: Key of `READERS`, which is also the option in error messages.
        path: The file; it may be compressed by gzip.

    Raises:
        UsageError: The file cannot be read, is of another format, or has no job that ran.
    """
    collector = JobCollector()
    with open_regular(path) as file:
        try:
            READERS[option](_lines(file, collector), collector)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{option}: cannot read {quoted(path)}: {error}") from error
        except ValueError as error:
            raise UsageError(f"{option}: {quoted(path)}: {error}") from error
    return collector.mix(path.name, option)


def _lines(file: IO[bytes], collector: JobCollector) -> Iterator[str]:
    """Yield the lines without their ends. A last line without an end is left out."""
    start = file.read(len(_GZIP))
    file.seek(0)
    stream = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if start == _GZIP else file
    while line := stream.readline(_LONGEST_LINE):
        if line.endswith(b"\n"):
            yield line.decode("utf-8", "replace").rstrip("\r\n")
        elif len(line) == _LONGEST_LINE:
            raise ValueError(f"found a line of more than {_LONGEST_LINE} bytes")
        elif line.strip():
            collector.leave_out("on an incomplete line")
