"""Programs of a scenario that application files describe: what each copy runs, and whether its result is right.

The folder of a run holds `applications.json`, with the verdict and the figure of merit of every copy that ended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.lines import is_count
from meshmark.native import openmpi_unbound
from meshmark.place.app.application import Application, absent, named_tables, of_tables
from meshmark.place.app.attempt import HIGHEST, LOWEST, Results, home, write_files
from meshmark.place.app.configuration import Configuration, Folders, argv, configurations, environment, placeholders
from meshmark.place.app.machine_limits import ALL, NEVER_USUAL
from meshmark.place.app.preparation import prepare
from meshmark.place.app.verification import verified
from meshmark.place.trial import tail
from meshmark.store.files import make_folder, read_json, write_file
from meshmark.store.record import BETTER, Better

VERDICTS: Final = "applications.json"
# Dimensions that a scenario decides by keys of its own.
_KEYS: Final = {
    "threads": "threads",
    "copies": "copies",
    "bind": "cpus or policy",
    "memory": "memory",
    "wait": "wait_policy",
    "scheduler": "priority",
}
_OF_MEASURE_APP: Final = ("cache", "clock")
_WRAPPED: Final = ("ranks", "pages")  # dimensions that `meshmark run` implements


@dataclass(frozen=True, slots=True)
class Described:
    """An application in the one configuration that a scenario runs.

    Attributes:
        name: As it is called in the scenario.
    """

    name: str
    app: Application
    one: Configuration

    @property
    def cpus(self) -> int:
        """That a copy can use: the threads of all its ranks."""
        return self.one.count("threads") * self.one.count("ranks")

    def check(self) -> None:
        """
        Raises:
            AbsentError: The program is not installed, unless a build makes it.
        """
        program = self.app.command[0]
        made = "{" in program or ("/" in program and self.app.scratch)
        if not made and (missing := absent(self.app, program, self.app.source)):
            raise missing

    @property
    def identity(self) -> str:
        """What a resumed study must not change: its name, its values, and a digest of its tables."""
        return f"{self.name} {self.one.label} {hashlib.sha256(repr(self.app).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of a copy. `value`: its figure of merit in `unit`; None without one. `reason`: why its result is wrong, or ""."""

    program: str
    copy: int
    value: float | None = None
    unit: str = ""
    better: Better = "none"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """How errors call the file and a value of a dimension: keys of a scenario, or options."""

    file: str
    dimension: str
    example: str  # with {name} and {value}


def described(name: str, dimensions: Mapping[str, Any], threads: int | None, folder: Path, asked: Asked) -> Described:
    """The application of a program, in its one configuration.

    Args:
        name: Of `meshmark list applications`, or a path relative to `folder`.
        dimensions: One value for each dimension of which the file has several.
        threads: Of the program; None: not named.

    Raises:
        UsageError: The file is invalid, or several configurations are left.
    """
    if own := next((d for d in dimensions if d in _KEYS), ""):
        raise UsageError(f"{asked.dimension}: found {own}, which is {_KEYS[own]} of a [[program]]; allowed: others")
    try:
        tables, source = named_tables(name, dimensions, folder)
    except UsageError as why:
        raise UsageError(f"{asked.file}: {str(why).removeprefix('FILE: ')}", why.hint) from why
    varied = tables.get("dimensions", {})
    if isinstance(varied, dict):  # else refused below
        kept = {k: v for k, v in varied.items() if k not in _KEYS}
        if "threads" in varied or threads is not None:
            kept["threads"] = threads or 1
        tables["dimensions"] = kept
    app = of_tables(tables, name, source)
    if limited := next((d for d in _OF_MEASURE_APP if app.dimensions.get(d, (ALL,)) != (ALL,)), ""):
        raise UsageError(f"{asked.dimension}: found {limited}, which only measure app varies; allowed: {ALL}")
    if limited := next((d for d in NEVER_USUAL if d in app.dimensions), ""):
        raise UsageError(f"{asked.dimension}: found {limited}, which only measure app varies; allowed: others")
    every = configurations(app)
    if len(every) != 1:
        several = [n for n, values in app.dimensions.items() if len(values) > 1]
        example = asked.example.format(name=several[0], value=json.dumps(app.dimensions[several[0]][0]))
        raise UsageError(
            f"{asked.file}: found {len(every)} combinations of {', '.join(several)} in {name}; allowed: one", example
        )
    return Described(name, app, every[0])


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of one program in a run. Runs of a study share the folder of builds and inputs."""

    program: str
    what: Described
    copies: int
    folders: Folders

    def prepare(self, notify: Callable[[str], None]) -> None:
        """Make builds and inputs that are not there yet, and the files of each copy.

        Raises:
            AbsentError: The program is not installed.
            MeshmarkError: A build or the inputs cannot be made.
        """
        app, one = self.what.app, self.what.one
        make_folder(self.folders.root)
        made = prepare(app, self.folders, notify)
        if why := made.failed.get(one.values.get("build", "")):
            raise MeshmarkError(f"program {self.program}: build {one.values['build']}: {why}")
        if self.folders.run.exists():
            raise UsageError(f"{self.folders.run}: exists already", "name another folder with --out")
        make_folder(self.folders.run)
        for copy in range(self.copies):
            write_files(app, one, self.folders, copy)

    def command(self, copy: int) -> list[str]:
        """What a copy runs; `meshmark run` starts its ranks, and sets its page size."""
        app, one = self.what.app, self.what.one
        words = argv(app, one, self._placeholders(copy), self.folders.run / f"{copy}.jsonl", observed=False)
        return words if any(d in one.values for d in _WRAPPED) else words[words.index("--") + 1 :]

    def environment(self, copy: int) -> dict[str, str]:
        one = self.what.one
        found = environment(self.what.app, one, self._placeholders(copy))
        return {**openmpi_unbound(), **found} if "ranks" in one.values else found

    def home(self, copy: int) -> Path:
        """The folder in which a copy runs."""
        return home(self.what.app, self.folders, copy)

    def results(self) -> list[Results]:
        """The files of results, of each copy, before the run."""
        app, one = self.what.app, self.what.one
        return [Results(app, one, self.folders, copy) for copy in range(self.copies)]

    def verdict(self, copy: int, results: Results, out: Path, err: Path) -> Verdict:
        """Whether the result of a copy that ended with status 0 is right, and its figure of merit."""
        app = self.what.app
        results.add_to(out)
        about: dict[str, Any] = {"program": self.program, "copy": copy}
        if app.figure.pattern:
            found = app.judged_by.read(0.0, out, err)
            if isinstance(found, str):
                return Verdict(**about, reason=found.replace("--pattern", "figure.pattern"))
            value = found.value * app.figure.scale
            if not LOWEST <= value <= HIGHEST:
                return Verdict(**about, reason=f"figure.scale: found a figure of {value:g}")
            about |= {"value": value, "unit": app.figure.unit, "better": found.better}
        text = tail(out) + "\n" + tail(err)
        wrong = verified(app.verify, text, self.home(copy), self._placeholders(copy))
        return Verdict(**about, reason=wrong)

    def _placeholders(self, copy: int) -> dict[str, str]:
        return placeholders(self.what.app, self.what.one, self.folders, copy)


def save_verdicts(folder: Path, verdicts: Sequence[Verdict]) -> None:
    write_file(folder / VERDICTS, json.dumps([asdict(v) for v in verdicts], indent=1).encode() + b"\n", private=True)


def read_verdicts(folder: Path) -> dict[tuple[str, int], Verdict]:
    """The verdicts of a run by program and copy, without damaged ones; empty if there are none."""
    if not (folder / VERDICTS).exists():
        return {}
    try:
        lines = read_json(folder / VERDICTS)
    except MeshmarkError:
        return {}
    found = {}
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, dict) and _is_verdict(line):
            found[line["program"], line["copy"]] = Verdict(**line)
    return found


def _is_verdict(line: Mapping[str, Any]) -> bool:
    texts = ("program", "unit", "reason")
    return (
        line.keys() == {"program", "copy", "value", "unit", "better", "reason"}
        and all(isinstance(line[k], str) and line[k].isprintable() for k in texts)
        and is_count(line["copy"])
        and (line["value"] is None or (isinstance(line["value"], float) and LOWEST <= line["value"] <= HIGHEST))
        and line["better"] in BETTER
    )
