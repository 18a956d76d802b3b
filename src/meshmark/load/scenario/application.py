"""Describes programs of a scenario that have application files: what each copy runs, and whether its result is right.

The folder of a run holds `applications.json`, with the verdict and the figure of merit of every copy that ended with
status 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.applications.application import Application, absent, named_tables, of_tables
from meshmark.applications.attempt import HIGHEST, LOWEST, ResultsFile, home, write_files
from meshmark.applications.configuration import Configuration, Folders, argv, configurations, environment, placeholders
from meshmark.applications.preparation import prepare
from meshmark.applications.resources.machine_limits import ALL, NEVER_USUAL
from meshmark.applications.verification import verified
from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.trial import tail
from meshmark.load.scenario.lines import is_count
from meshmark.native import openmpi_unbound
from meshmark.store.files import make_folder, read_json, write_json
from meshmark.store.record import BETTER, Better

VERDICTS: Final = "applications.json"
# Dimensions that a scenario sets with separate keys.
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
class ScenarioApplication:
    """An application in the one configuration that a scenario runs.

    Attributes:
        name: Name of the application in the scenario.
    """

    name: str
    app: Application
    configuration: Configuration

    @property
    def cpus(self) -> int:
        """Return the number of CPUs that a copy can use: the threads of all its ranks."""
        return self.configuration.count("threads") * self.configuration.count("ranks")

    def check(self) -> None:
        """Check that the program is installed or that a build makes it.

        Raises:
            AbsentError: The program is not installed, and no build makes it.
        """
        program = self.app.command[0]
        is_built = "{" in program or ("/" in program and self.app.scratch)
        if not is_built and (error := absent(self.app, program, self.app.source)):
            raise error

    @property
    def identity(self) -> str:
        """Return the name, the values and a digest of the tables, which a resumed study must not change."""
        return f"{self.name} {self.configuration.label} {hashlib.sha256(repr(self.app).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyVerdict:
    """The verdict on a copy. `value`: figure of merit in `unit`, or None; `reason`: why the result is wrong, or ""."""

    program: str
    copy: int
    value: float | None = None
    unit: str = ""
    better: Better = "none"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DimensionTerms:
    """The terms in error messages for the file and for a value of a dimension: keys of a scenario, or options."""

    file: str
    dimension: str
    example: str  # contains {name} and {value}


def described(
    name: str, dimensions: Mapping[str, Any], threads: int | None, folder: Path, terms: DimensionTerms
) -> ScenarioApplication:
    """Return the application of a program in its one configuration.

    Args:
        name: Name from `meshmark list applications`, or a path relative to `folder`.
        dimensions: One value for each dimension for which the file has several.
        threads: Threads of the program; None: not given.
        folder: Folder to which a path is relative.
        terms: Names of the keys or options, for errors.

    Raises:
        UsageError: The file is invalid, or more than one configuration remains.
    """
    if key := next((d for d in dimensions if d in _KEYS), ""):
        raise UsageError(f"{terms.dimension}: found {key}, which is {_KEYS[key]} of a [[program]]; allowed: others")
    try:
        tables, source = named_tables(name, dimensions, folder)
    except UsageError as error:
        raise UsageError(f"{terms.file}: {str(error).removeprefix('FILE: ')}", error.hint) from error
    dimension_table = tables.get("dimensions", {})
    if isinstance(dimension_table, dict):  # other types are refused below
        dimensions_kept = {k: v for k, v in dimension_table.items() if k not in _KEYS}
        if "threads" in dimension_table or threads is not None:
            dimensions_kept["threads"] = threads or 1
        tables["dimensions"] = dimensions_kept
    app = of_tables(tables, name, source)
    if refused := next((d for d in _OF_MEASURE_APP if app.dimensions.get(d, (ALL,)) != (ALL,)), ""):
        raise UsageError(
            f"{terms.dimension}: found {refused}, which only `meshmark measure app` varies; allowed: {ALL}"
        )
    if refused := next((d for d in NEVER_USUAL if d in app.dimensions), ""):
        raise UsageError(
            f"{terms.dimension}: found {refused}, which only `meshmark measure app` varies; allowed: others"
        )
    variations = configurations(app)
    if len(variations) != 1:
        varied = [n for n, values in app.dimensions.items() if len(values) > 1]
        example = terms.example.format(name=varied[0], value=json.dumps(app.dimensions[varied[0]][0]))
        raise UsageError(
            f"{terms.file}: found {len(variations)} combinations of {', '.join(varied)} in {name}; allowed: one",
            example,
        )
    return ScenarioApplication(name, app, variations[0])


@dataclass(frozen=True, slots=True)
class ApplicationCopies:
    """The copies of one program in a run. Runs of a study share the folder of builds and inputs."""

    program: str
    what: ScenarioApplication
    copies: int
    folders: Folders

    def prepare(self, notify: Callable[[str], None]) -> None:
        """Create the builds and inputs that do not exist yet, and the files of each copy.

        Raises:
            AbsentError: The program is not installed.
            MeshmarkError: A build or the inputs cannot be created.
        """
        app, configuration = self.what.app, self.what.configuration
        make_folder(self.folders.root)
        preparation = prepare(app, self.folders, notify)
        if reason := preparation.failed.get(configuration.values.get("build", "")):
            raise MeshmarkError(f"program {self.program}: build {configuration.values['build']}: {reason}")
        if self.folders.run.exists():
            raise UsageError(f"{self.folders.run}: exists already", "name another folder with --out")
        make_folder(self.folders.run)
        for copy in range(self.copies):
            write_files(app, configuration, self.folders, copy)

    def command(self, copy: int) -> list[str]:
        """Return the command line of a copy; `meshmark run` starts its ranks, and sets its page size."""
        app, configuration = self.what.app, self.what.configuration
        words = argv(app, configuration, self._placeholders(copy), self.folders.run / f"{copy}.jsonl", observed=False)
        return words if any(d in configuration.values for d in _WRAPPED) else words[words.index("--") + 1 :]

    def environment(self, copy: int) -> dict[str, str]:
        """Return the variables of a copy; ranks of Open MPI are not bound by their launcher."""
        configuration = self.what.configuration
        variables = environment(self.what.app, configuration, self._placeholders(copy))
        return {**openmpi_unbound(), **variables} if "ranks" in configuration.values else variables

    def home(self, copy: int) -> Path:
        """Return the folder in which a copy runs."""
        return home(self.what.app, self.folders, copy)

    def results(self) -> list[ResultsFile]:
        """Return the results file of each copy, with its state before the run."""
        app, configuration = self.what.app, self.what.configuration
        return [ResultsFile(app, configuration, self.folders, copy) for copy in range(self.copies)]

    def verdict(self, copy: int, results: ResultsFile, out: Path, err: Path) -> CopyVerdict:
        """Return whether the result of a copy with exit status 0 is right, and its figure of merit."""
        app = self.what.app
        results.add_to(out)
        fields: dict[str, Any] = {"program": self.program, "copy": copy}
        if app.figure.pattern:
            figure = app.judged_by.read(0.0, out, err)
            if isinstance(figure, str):
                return CopyVerdict(**fields, reason=figure.replace("--pattern", "figure.pattern"))
            value = figure.value * app.figure.scale
            if not LOWEST <= value <= HIGHEST:
                return CopyVerdict(**fields, reason=f"figure.scale: found a figure of {value:g}")
            fields |= {"value": value, "unit": app.figure.unit, "better": figure.better}
        text = tail(out) + "\n" + tail(err)
        reason = verified(app.verify, text, self.home(copy), self._placeholders(copy))
        return CopyVerdict(**fields, reason=reason)

    def _placeholders(self, copy: int) -> dict[str, str]:
        return placeholders(self.what.app, self.what.configuration, self.folders, copy)


def save_verdicts(folder: Path, verdicts: Sequence[CopyVerdict]) -> None:
    """Write the verdicts on the copies of an application into the folder of a run."""
    write_json(folder / VERDICTS, [asdict(v) for v in verdicts])


def read_verdicts(folder: Path) -> dict[tuple[str, int], CopyVerdict]:
    """Return the verdicts of a run by program and copy, without damaged verdicts; empty if there are none."""
    if not (folder / VERDICTS).exists():
        return {}
    try:
        lines = read_json(folder / VERDICTS)
    except MeshmarkError:
        return {}
    verdicts = {}
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, dict) and _is_verdict(line):
            verdicts[line["program"], line["copy"]] = CopyVerdict(**line)
    return verdicts


def _is_verdict(line: Mapping[str, Any]) -> bool:
    texts = ("program", "unit", "reason")
    return (
        line.keys() == {"program", "copy", "value", "unit", "better", "reason"}
        and all(isinstance(line[k], str) and line[k].isprintable() for k in texts)
        and is_count(line["copy"])
        and (line["value"] is None or (isinstance(line["value"], float) and LOWEST <= line["value"] <= HIGHEST))
        and line["better"] in BETTER
    )
