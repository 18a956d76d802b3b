"""Applications on nodes: the commands that a plan gives to the runner of a node (native/node/program.cpp).

Nodes have no Python. The head node replaces the placeholders of an application file before it writes the plan, and
parses what the runs printed when it ingests their results (`fleet.verdicts`). An application that nodes cannot run is
refused before anything runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from meshmark.applications.application import COUNTS, Application, filled, named_tables, of_tables, used_names
from meshmark.applications.configuration import Configuration, configurations, environment
from meshmark.applications.resources.machine_limits import NEVER_USUAL
from meshmark.applications.trials import FAILURES
from meshmark.applications.verification import LIMIT_S, OUTPUT_BYTES
from meshmark.errors import UsageError, quoted
from meshmark.experiments.setting import AS_IT_IS
from meshmark.measure.runs.spec import StepSpec
from meshmark.values.inputs import key_text

RUNS: Final = 3  # runs of a repetition
WARMUP: Final = 1
OUTPUT_KIB: Final = 64
_MIB: Final = 1 << 20
_END_S: Final = 15.0  # time for the processes of a run to exit
LONGEST_S: Final = 86_400.0  # longest limit of a step, and of a plan
# Dimensions that nodes do not implement, each with the value that changes nothing.
_AS_IT_IS: Final = {
    **AS_IT_IS,
    "copies": "1",
    "ranks": "1",
    "scheduler": "other",
    "cache": "all",
    "clock": "all",
}
# Placeholders that have no meaning on nodes, each with what is allowed instead.
_ELSEWHERE: Final = {
    "inputs": "inputs that [files] creates, or that are in {source}, a folder that all nodes share",
    "build": "a program that is installed on the nodes",
    "meshmark": "other programs, since nodes have no Python",
}


@dataclass(frozen=True, slots=True)
class NodeApplication:
    """An application in the one configuration that nodes run.

    Attributes:
        tables: Tables of its file, with the values of the step.
        warm: Whether warm-up runs come first.
    """

    app: Application
    configuration: Configuration
    tables: Mapping[str, Any]
    warm: bool = True

    @staticmethod
    def from_tables(tables: Mapping[str, Any], where: str, source: Path, *, warm: bool = True) -> NodeApplication:
        """Return the application that the tables of a file describe.

        Args:
            tables: Tables of the file, with the values of the step.
            where: Name of the application in errors.
            source: The folder of the file.
            warm: Whether warm-up runs come first.

        Raises:
            UsageError: The application is invalid, or nodes cannot run it; the message names the key, what was found
                and what is allowed.
        """
        app = of_tables(tables, where, source)
        _check(app, where)
        application = NodeApplication(app, configurations(app)[0], tables, warm)
        _check_output(application, where)
        return application

    @property
    def values(self) -> dict[str, str]:
        """Return the values of the placeholders on nodes."""
        return {**dict.fromkeys(COUNTS, "1"), **self.configuration.values, "source": str(self.app.source), "copy": "0"}

    @property
    def definition(self) -> str:
        """Return a digest of what runs and of its figure, since a change of either is not a change of the node."""
        app, figure = self.app, self.app.figure
        parts = [
            [app.command, sorted(app.env.items()), sorted(app.files.items()), app.output],
            [figure.pattern, figure.unit, figure.scale, figure.better],
            self.warm,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def application_of(step: StepSpec, folder: Path, at: str) -> NodeApplication:
    """Return the application of a step.

    Args:
        step: The step, which names the file of the application.
        folder: The folder to which the name of the file is relative.
        at: Name of the step in errors.

    Raises:
        UsageError: The file does not exist, or `NodeApplication.from_tables` raises this error.
    """
    try:
        tables, source = named_tables(step.application, step.dimensions, folder)
    except UsageError as error:
        raise UsageError(f"{at}: application: {str(error).removeprefix('FILE: ')}", error.hint) from error
    return NodeApplication.from_tables(tables, step.application, source)


def step_of(what: NodeApplication, step: StepSpec) -> dict[str, Any]:
    """Return a step of a plan, without its id.

    Raises:
        UsageError: The runs may take longer than a day.
    """
    app, configuration = what.app, what.configuration
    values = what.values
    without_ranks = Configuration(
        {name: value for name, value in configuration.values.items() if name != "ranks"}
    )  # no launcher
    runs, warmup = step.runs or RUNS, WARMUP if step.warmup is None else step.warmup
    each_s = app.limits.timeout_s + _END_S + (LIMIT_S if app.verify.command else 0.0)
    limit_s = (warmup + runs + 1) * each_s  # one failed run is repeated
    if limit_s > LONGEST_S:
        most = LONGEST_S / (warmup + runs + 1) - (each_s - app.limits.timeout_s)
        timeout = f"{app.limits.timeout_s:g}, with which {warmup + runs} runs may take longer than a day"
        raise UsageError(f"{step.application}: limits.timeout_s: found {timeout}; allowed on nodes: at most {most:.0f}")
    program: dict[str, Any] = {
        "runs": runs,
        "warmup": warmup,
        "environment": environment(app, without_ranks, values),
        "files": {name: filled(text, values) for name, text in app.files.items()},
        "results": filled(app.output, values),
        "verify": [filled(word, values) for word in app.verify.command or ()],
        "verify_timeout_s": LIMIT_S,
        "verify_output": OUTPUT_BYTES,
        "failures": FAILURES,
        "timeout_s": app.limits.timeout_s,
        "output": math.ceil(app.limits.output_mib * _MIB),
        "kept": (step.output_kib or OUTPUT_KIB) << 10,
    }
    if app.limits.memory_mib is not None:
        program["memory"] = math.ceil(app.limits.memory_mib * _MIB)
    return {
        "argv": [filled(word, values) for word in app.command],
        "limit_s": limit_s,
        "program": program,
        "application": {"tables": dict(what.tables), "source": str(app.source)},
    }


def of_step(step: Mapping[str, Any]) -> NodeApplication | None:
    """Return the application of a step of a plan; None if the step has none, or is damaged."""
    try:
        stored = step["application"]
        warm = bool(step["program"]["warmup"])
        return NodeApplication.from_tables(stored["tables"], "plan", Path(stored["source"]), warm=warm)
    except (KeyError, TypeError, UsageError):
        return None


def _check(app: Application, where: str) -> None:
    """Raise UsageError if nodes cannot run the application."""

    def refuse(key: str, found: str, allowed: str, hint: str = "") -> NoReturn:
        raise UsageError(f"{where}: {key}: found {found}; allowed on nodes: {allowed}", hint)

    if app.prepare:
        refuse("application.prepare", f"'{quoted(app.prepare[0][0])}'", _ELSEWHERE["inputs"])
    if app.profile:
        refuse("application.profile", "true", "false, since nodes run no profiler")
    if app.build:
        refuse("build", f"'{next(iter(app.build))}'", _ELSEWHERE["build"])
    for name, options in app.dimensions.items():
        key, text = f"dimensions.{name}", ", ".join(map(key_text, options))
        if name == "ranks" and options != (_AS_IT_IS[name],):
            refuse(key, text, "1; a launcher may be part of application.command, such as mpirun -n 4")
        if name in NEVER_USUAL:
            refuse(key, text, "none")
        if len(options) > 1:
            refuse(key, text, "one value", f'dimensions = {{ {name} = "{options[0]}" }} in the step')
        if options[0] != _AS_IT_IS.get(name, options[0]):
            refuse(key, text, _AS_IT_IS[name])
    for name in used_names(app, where) & _ELSEWHERE.keys():
        refuse("application", f"{{{name}}}", _ELSEWHERE[name])
    program = app.command[0]
    if "/" in program and not program.startswith(("/", "{source}/")):
        refuse("application.command", f"'{quoted(program)}'", "a program of the PATH, an absolute path, or {source}/…")


def _check_output(what: NodeApplication, where: str) -> None:
    """Raise UsageError unless the file of results is one that a run creates in its folder."""
    app, name = what.app, filled(what.app.output, what.values)
    path = PurePosixPath(name)
    if not app.output:
        return
    if not path.parts or path.is_absolute() or ".." in path.parts:
        allowed = "a file in the folder of the run"
    elif path in map(PurePosixPath, app.files):
        allowed = "a file that [files] does not have"
    else:
        return
    raise UsageError(f"{where}: application.output: found '{quoted(name)}'; allowed on nodes: {allowed}")
