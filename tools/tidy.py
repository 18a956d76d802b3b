"""Checks C++ sources by clang-tidy, except those that were checked before with the same content and the same headers.

Usage: tidy.py BUILD JOBS [--all] SOURCE…

A source that passes leaves an empty file in BUILD/tidy, named after the digest of the source, of the headers of this
project that it includes, directly or not, of the commands that compile it, of the settings and of the version of
clang-tidy. `--all` checks every source.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

INCLUDED = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
ROOTS = (Path("native"), Path("tests/native"))  # folders that the includes of this project are relative to


@cache
def headers(source: Path) -> frozenset[Path]:
    """Return the files of this project that a file includes directly."""
    names = (name.decode() for name in INCLUDED.findall(source.read_bytes()))
    return frozenset(path for name in names for root in (source.parent, *ROOTS) if (path := root / name).is_file())


def commands_by_source(build: Path) -> dict[Path, str]:
    """Return the commands that compile each source, which is an absolute path."""
    commands: dict[Path, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        commands.setdefault(Path(entry["file"]), []).append(entry["command"])
    return {source: "\n".join(sorted(lines)) for source, lines in commands.items()}


def digest(source: Path, commands: str) -> str:
    """Return the digest of everything in this project that the result for a source depends on."""
    seen: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += headers(path)
    texts = [str(path).encode() + path.read_bytes() for path in (*sorted(seen), Path(".clang-tidy"))]
    texts += [commands.encode(), *re.findall(rb"^clang-tidy==\S+", Path("requirements/locked.txt").read_bytes(), re.M)]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:32]


def main() -> int:
    build, jobs, *words = sys.argv[1:]
    folder = Path(build) / "tidy"
    folder.mkdir(parents=True, exist_ok=True)
    sources = [Path(word) for word in words if word != "--all"]
    commands = commands_by_source(Path(build))
    marks = {source: folder / digest(source, commands.get(source.absolute(), "")) for source in sources}
    changed = [source for source in sources if "--all" in words or not marks[source].exists()]
    print(f"clang-tidy: {len(changed)} of {len(sources)} sources changed", flush=True)
    tidy = [str(Path(sys.executable).with_name("clang-tidy")), "--quiet", "-p", build]
    option = f"--extra-arg=-isystem{Path(build).absolute()}/openmp"

    def passes(source: Path) -> bool:
        if subprocess.run([*tidy, option, str(source)], check=False).returncode:
            return False
        marks[source].touch()
        return True

    with ThreadPoolExecutor(int(jobs)) as pool:
        return 0 if all([*pool.map(passes, changed)]) else 1


if __name__ == "__main__":
    sys.exit(main())
