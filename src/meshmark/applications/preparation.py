"""Makes the inputs and the builds of an application, once for each measurement."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from meshmark.applications.application import Application, absent, filled
from meshmark.applications.configuration import Configuration, Folders, placeholders
from meshmark.applications.resources.machine_limits import LIMITS, check_limits
from meshmark.applications.resources.neighbours import check_neighbours
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.experiments.turns import failure, run_to_end
from meshmark.machine.sources import from_sysfs
from meshmark.store.files import make_folder, write_file

_LIMIT_S: Final = 3600.0  # time limit of a command that builds or makes inputs
_DONE: Final = ".done"


@dataclass(slots=True)
class PreparationResult:
    """The result of the preparation.

    Attributes:
        build_s: Time of each build in s, by name.
        failed: Reasons why builds failed, by name.
    """

    build_s: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def prepare(app: Application, folders: Folders, notify: Callable[[str], None]) -> PreparationResult:
    """Make the inputs and builds that do not exist yet.

    Raises:
        AbsentError: Inputs would be made for a program that is not installed, or this machine cannot limit a dimension.
        UsageError: This machine cannot limit a dimension to a value.
        MeshmarkError: The inputs cannot be made, or all builds failed.
    """
    if any(name in app.dimensions for name in LIMITS):
        check_limits(app.dimensions, from_sysfs)
        check_neighbours(app.dimensions, from_sysfs)
    prepared = PreparationResult()
    program = app.command[0]
    is_known = "/" not in program and "{" not in program
    if app.prepare and is_known and (error := absent(app, program, app.source)):
        raise error
    if app.prepare:
        values = placeholders(app, Configuration({}), folders)
        try:
            _, reason = _made(folders.inputs, app.prepare, values, folders.root)
        except UsageError as error:
            reason = str(error).removeprefix("COMMAND: ")
        if reason:
            raise MeshmarkError(f"{app.name}: prepare: {reason}")
    builds = app.dimensions.get("build", ())
    for name in builds:
        values = placeholders(app, Configuration({"build": name}), folders)
        commands, spec = app.build[name].commands, app.build[name].spack
        if spec:
            commands = (("spack", "install", "--fail-fast", spec), *commands)
        if not (folders.build(name) / _DONE).exists():
            notify(f"build {name}")
        try:
            took_s, reason = _made(folders.build(name), commands, values, folders.root, spec)
        except (UsageError, AbsentError) as error:  # the compiler, for example
            took_s, reason = 0.0, str(error).removeprefix("COMMAND: ")
        if reason:
            prepared.failed[name] = reason
            notify(f"build {name} failed: {reason}")
        else:
            prepared.build_s[name] = took_s
    if builds and len(prepared.failed) == len(builds):
        raise MeshmarkError(f"{app.name}: build {builds[0]}: {prepared.failed[builds[0]]}")
    return prepared


def _made(
    folder: Path, commands: Sequence[Sequence[str]], values: Mapping[str, str], root: Path, spec: str = ""
) -> tuple[float, str]:
    """Run commands in a new folder and link an installation by Spack there, unless this was done before.

    Returns:
        The time of the commands in s, and why the preparation failed; "" if it succeeded.
    """
    marker = folder / _DONE
    if marker.exists():
        return float(json.loads(marker.read_text(encoding="utf-8"))), ""
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    out, err = root / "prepare.out", root / "prepare.err"
    start_s = time.monotonic()
    for command in commands:
        words = [filled(word, values) for word in command]
        exit_report = run_to_end(words, {}, out, err, _LIMIT_S, folder)
        if reason := failure(exit_report, out, err, _LIMIT_S):
            return 0.0, f"{words[0]} {reason}"
    took_s = time.monotonic() - start_s
    if spec and (reason := _of_spack(spec, folder, root)):
        return 0.0, reason
    write_file(marker, json.dumps(took_s).encode())
    return took_s, ""


def _of_spack(spec: str, folder: Path, root: Path) -> str:
    """Link an installation by Spack into the folder of a build. Return why this failed; "" if it succeeded."""
    out, err = root / "prepare.out", root / "prepare.err"
    exit_report = run_to_end(["spack", "location", "-i", spec], {}, out, err, _LIMIT_S)
    if reason := failure(exit_report, out, err, _LIMIT_S):
        return f"spack location {reason}"
    place = Path(out.read_text(encoding="utf-8", errors="replace").strip())
    for entry in place.iterdir() if place.is_dir() else ():
        link = folder / entry.name
        if not link.exists():
            link.symlink_to(entry)
    return ""
