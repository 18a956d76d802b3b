"""Makes the inputs and the builds of an application, once for each measurement."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.sources import from_sysfs
from meshmark.place.app.application import Application, absent, filled
from meshmark.place.app.configuration import Configuration, Folders, placeholders
from meshmark.place.app.machine_limits import LIMITS, check_limits
from meshmark.place.app.neighbours import check_neighbours
from meshmark.place.turns import failure, run_to_end
from meshmark.store.files import make_folder, write_file

_LIMIT_S: Final = 3600.0  # of a command that builds or makes inputs
_DONE: Final = ".done"


@dataclass(slots=True)
class Prepared:
    """What was made.

    Attributes:
        build_s: Time of each build.
        failed: Why builds failed, by name.
    """

    build_s: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def prepare(app: Application, folders: Folders, notify: Callable[[str], None]) -> Prepared:
    """Make inputs and builds that are not there yet.

    Raises:
        AbsentError: Inputs would be made for a program that is not installed, or this machine cannot limit a dimension.
        UsageError: This machine cannot limit a dimension to a value.
        MeshmarkError: The inputs cannot be made, or all builds failed.
    """
    if any(name in app.dimensions for name in LIMITS):
        check_limits(app.dimensions, from_sysfs)
        check_neighbours(app.dimensions, from_sysfs)
    found = Prepared()
    program = app.command[0]
    known = "/" not in program and "{" not in program
    if app.prepare and known and (missing := absent(app, program, app.source)):
        raise missing
    if app.prepare:
        values = placeholders(app, Configuration({}), folders)
        try:
            _, why = _made(folders.inputs, app.prepare, values, folders.root)
        except UsageError as missing:
            why = str(missing).removeprefix("COMMAND: ")
        if why:
            raise MeshmarkError(f"{app.name}: prepare: {why}")
    wanted = app.dimensions.get("build", ())
    for name in wanted:
        values = placeholders(app, Configuration({"build": name}), folders)
        commands, spec = app.build[name].commands, app.build[name].spack
        if spec:
            commands = (("spack", "install", "--fail-fast", spec), *commands)
        if not (folders.build(name) / _DONE).exists():
            notify(f"build {name}")
        try:
            took_s, why = _made(folders.build(name), commands, values, folders.root, spec)
        except (UsageError, AbsentError) as missing:  # the compiler, for example
            took_s, why = 0.0, str(missing).removeprefix("COMMAND: ")
        if why:
            found.failed[name] = why
            notify(f"build {name} failed: {why}")
        else:
            found.build_s[name] = took_s
    if wanted and len(found.failed) == len(wanted):
        raise MeshmarkError(f"{app.name}: build {wanted[0]}: {found.failed[wanted[0]]}")
    return found


def _made(
    folder: Path, commands: Sequence[Sequence[str]], values: Mapping[str, str], root: Path, spec: str = ""
) -> tuple[float, str]:
    """Run commands in a new folder and link an installation by Spack there, unless that was done before.

    Returns:
        The time of the commands, and why it failed.
    """
    done = folder / _DONE
    if done.exists():
        return float(json.loads(done.read_text(encoding="utf-8"))), ""
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    out, err = root / "prepare.out", root / "prepare.err"
    began = time.monotonic()
    for command in commands:
        words = [filled(word, values) for word in command]
        ended = run_to_end(words, {}, out, err, _LIMIT_S, folder)
        if why := failure(ended, out, err, _LIMIT_S):
            return 0.0, f"{words[0]} {why}"
    took_s = time.monotonic() - began
    if spec and (why := _of_spack(spec, folder, root)):
        return 0.0, why
    write_file(done, json.dumps(took_s).encode())
    return took_s, ""


def _of_spack(spec: str, folder: Path, root: Path) -> str:
    """Make the folder of a build that of an installation by Spack; why it cannot be."""
    out, err = root / "prepare.out", root / "prepare.err"
    ended = run_to_end(["spack", "location", "-i", spec], {}, out, err, _LIMIT_S)
    if why := failure(ended, out, err, _LIMIT_S):
        return f"spack location {why}"
    place = Path(out.read_text(encoding="utf-8", errors="replace").strip())
    for entry in place.iterdir() if place.is_dir() else ():
        link = folder / entry.name
        if not link.exists():
            link.symlink_to(entry)
    return ""
