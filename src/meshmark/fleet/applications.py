"""Applications on nodes: what the runner of a node is told to run, see native/node/program.cpp.

Nodes have no Python. The head fills in the words of an application file before it writes the plan, and reads what its
runs printed when it takes their results in, see `fleet.verdicts`. What nodes cannot do is refused before anything runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from meshmark.errors import UsageError, quoted
from meshmark.measure.spec import StepSpec
from meshmark.place.app.application import COUNTS, Application, filled, named_tables, of_tables, used_names
from meshmark.place.app.configuration import Configuration, configurations, environment
from meshmark.place.app.machine_limits import NEVER_USUAL
from meshmark.place.app.trials import FAILURES
from meshmark.place.app.verification import LIMIT_S, OUTPUT_BYTES
from meshmark.place.setting import AS_IT_IS
from meshmark.values.inputs import shown

RUNS: Final = 3  # of a repetition
WARMUP: Final = 1
OUTPUT_KIB: Final = 64
_MIB: Final = 1 << 20
_END_S: Final = 15.0  # for the processes of a run to end
LONGEST_S: Final = 86_400.0  # of a step, and of a plan
# Dimensions that nodes do not implement, and the value that asks for nothing.
_AS_IT_IS: Final = {
    **AS_IT_IS,
    "copies": "1",
    "ranks": "1",
    "scheduler": "other",
    "cache": "all",
    "clock": "all",
}
# Names in braces that mean nothing on nodes.
_ELSEWHERE: Final = {
    "inputs": "inputs that are made by [files], or lie in {source}, a folder that all nodes share",
    "build": "a program that is there",
    "meshmark": "other programs, since nodes have no Python",
}


@dataclass(frozen=True, slots=True)
class NodeApplication:
    """An application in the one configuration that nodes run.

    Attributes:
        tables: Those of its file, with the values of the step.
        warm: Whether runs that do not count come first.
    """

    app: Application
    one: Configuration
    tables: Mapping[str, Any]
    warm: bool = True

    @staticmethod
    def of(tables: Mapping[str, Any], where: str, source: Path, *, warm: bool = True) -> NodeApplication:
        """Args:
            where: Its name in errors.
            source: The folder of its file.
            warm: Whether runs that do not count come first.

        Raises:
            UsageError: It is invalid, or nodes cannot run it; the message names the key, what was found and what is
                allowed.
        """
        app = of_tables(tables, where, source)
        _check(app, where)
        found = NodeApplication(app, configurations(app)[0], tables, warm)
        _check_output(found, where)
        return found

    @property
    def values(self) -> dict[str, str]:
        """Of names in braces, on nodes."""
        return {**dict.fromkeys(COUNTS, "1"), **self.one.values, "source": str(self.app.source), "copy": "0"}

    @property
    def definition(self) -> str:
        """Digest of what runs and what its figure is: another program, input or figure is no change of a node."""
        app, figure = self.app, self.app.figure
        what = [
            [app.command, sorted(app.env.items()), sorted(app.files.items()), app.output],
            [figure.pattern, figure.unit, figure.scale, figure.better],
            self.warm,
        ]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]


def application_of(step: StepSpec, folder: Path, at: str) -> NodeApplication:
    """The application of a step.

    Args:
        folder: That its file is relative to.
        at: The step, for errors.

    Raises:
        UsageError: As `NodeApplication.of`, or there is no such file.
    """
    try:
        tables, source = named_tables(step.application, step.dimensions, folder)
    except UsageError as why:
        raise UsageError(f"{at}: application: {str(why).removeprefix('FILE: ')}", why.hint) from why
    return NodeApplication.of(tables, step.application, source)


def step_of(what: NodeApplication, step: StepSpec) -> dict[str, Any]:
    """A step of a plan, without its id.

    Raises:
        UsageError: Its runs may take longer than a day.
    """
    app, one = what.app, what.one
    values = what.values
    alone = Configuration({name: value for name, value in one.values.items() if name != "ranks"})  # no launcher
    runs, warmup = step.runs or RUNS, WARMUP if step.warmup is None else step.warmup
    each_s = app.limits.timeout_s + _END_S + (LIMIT_S if app.verify.command else 0.0)
    limit_s = (warmup + runs + 1) * each_s  # one run that failed is repeated
    if limit_s > LONGEST_S:
        most = LONGEST_S / (warmup + runs + 1) - (each_s - app.limits.timeout_s)
        found = f"{app.limits.timeout_s:g}, with which {warmup + runs} runs may take longer than a day"
        raise UsageError(f"{step.application}: limits.timeout_s: found {found}; allowed on nodes: at most {most:.0f}")
    program: dict[str, Any] = {
        "runs": runs,
        "warmup": warmup,
        "environment": environment(app, alone, values),
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
    """The application of a step of a plan; None if it has none, or is damaged."""
    try:
        found = step["application"]
        warm = bool(step["program"]["warmup"])
        return NodeApplication.of(found["tables"], "plan", Path(found["source"]), warm=warm)
    except (KeyError, TypeError, UsageError):
        return None


def _check(app: Application, where: str) -> None:
    """Raise UsageError for what nodes cannot do."""

    def refuse(key: str, found: str, allowed: str, hint: str = "") -> NoReturn:
        raise UsageError(f"{where}: {key}: found {found}; allowed on nodes: {allowed}", hint)

    if app.prepare:
        refuse("application.prepare", f"'{quoted(app.prepare[0][0])}'", _ELSEWHERE["inputs"])
    if app.profile:
        refuse("application.profile", "true", "false, since nodes run no profiler")
    if app.build:
        refuse("build", f"'{next(iter(app.build))}'", _ELSEWHERE["build"])
    for name, given in app.dimensions.items():
        key, text = f"dimensions.{name}", ", ".join(map(shown, given))
        if name == "ranks" and given != (_AS_IT_IS[name],):
            refuse(key, text, "1; a launcher may be part of application.command, such as mpirun -n 4")
        if name in NEVER_USUAL:
            refuse(key, text, "none")
        if len(given) > 1:
            refuse(key, text, "one value", f'dimensions = {{ {name} = "{given[0]}" }} in the step')
        if given[0] != _AS_IT_IS.get(name, given[0]):
            refuse(key, text, _AS_IT_IS[name])
    for name in used_names(app, where) & _ELSEWHERE.keys():
        refuse("application", f"{{{name}}}", _ELSEWHERE[name])
    program = app.command[0]
    if "/" in program and not program.startswith(("/", "{source}/")):
        refuse("application.command", f"'{quoted(program)}'", "a program of the PATH, an absolute path, or {source}/…")


def _check_output(what: NodeApplication, where: str) -> None:
    """Raise UsageError if the file of results is none that a run makes in its folder."""
    app, name = what.app, filled(what.app.output, what.values)
    path = PurePosixPath(name)
    if not app.output:
        return
    if not path.parts or path.is_absolute() or ".." in path.parts:
        allowed = "a file in the folder of the run"
    elif path in map(PurePosixPath, app.files):
        allowed = "a file that is none of [files]"
    else:
        return
    raise UsageError(f"{where}: application.output: found '{quoted(name)}'; allowed on nodes: {allowed}")
