"""Writes an application as a test of ReFrame, which runs it through a batch system and keeps its figures.

Source: https://reframe-hpc.readthedocs.io/en/stable/regression_test_api.html (ReFrame 4).
"""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Mapping
from typing import Final

from meshmark.errors import UsageError
from meshmark.place.app.application import COUNTS, DIMENSIONS, Application, filled
from meshmark.place.app.machine_limits import LIMITS
from meshmark.place.setting import AS_IT_IS
from meshmark.values.secrets import is_secret

_REFUSED: Final = ("copies", "scheduler", *LIMITS)
_VERIFIED: Final = "meshmark: verified"


def reframe_test(app: Application) -> str:
    """The Python text of a test with a parameter for each dimension.

    Raises:
        UsageError: ReFrame has nothing for a dimension.
    """
    for name in _REFUSED:
        if name in app.dimensions:
            raise UsageError(f"--reframe: found the dimension {name}, which ReFrame cannot vary")
    if spack := next((name for name, build in app.build.items() if build.spack), ""):
        raise UsageError(
            f"--reframe: found a spec of Spack in build.{spack}; ReFrame has a build system of its own for it"
        )
    names = {name: _identifier(name) for name in app.dimensions}
    lines = [
        repr(f"{app.about or app.name}: written by Meshmark."),
        "",
        "import shlex",
        "",
        "import reframe as rfm",
        "import reframe.utility.sanity as sn",
        "",
        "",
        "@rfm.simple_test",
        f"class {_identifier(app.name)}(rfm.RunOnlyRegressionTest):",
        f"    descr = {app.about or app.name!r}",
        "    valid_systems = ['*']",
        "    valid_prog_environs = ['*']",
        f"    time_limit = '{max(1, round(app.limits.timeout_s))}s'",
        f"    keep_files = {sorted(app.files)!r}" if app.files else "    keep_files = []",
        *(f"    {names[name]} = parameter({list(values)!r})" for name, values in app.dimensions.items()),
        "",
        "    @run_before('run')",
        "    def set_up(self):",
        *_set_up(app, names),
        "",
        "    @sanity_function",
        "    def verified(self):",
        f"        return sn.all([{', '.join(_sanity(app))}])",
        *_performance(app),
    ]
    return "\n".join(lines) + "\n"


def _set_up(app: Application, names: Mapping[str, str]) -> list[str]:
    """Statements that set the command and its environment."""
    lines = []
    if "ranks" in names:
        lines.append(f"        self.num_tasks = int(self.{names['ranks']})")
    if "threads" in names:
        lines.append(f"        self.num_cpus_per_task = int(self.{names['threads']})")
        lines.append(f"        self.env_vars['OMP_NUM_THREADS'] = self.{names['threads']}")
    if "wait" in names:
        lines.append(f"        self.env_vars['OMP_WAIT_POLICY'] = self.{names['wait']}")
    variables = [n for n in names if n not in DIMENSIONS and n.isupper()]
    lines += [f"        self.env_vars[{n!r}] = self.{names[n]}" for n in variables]
    for name, text in app.env.items():
        if is_secret(name):  # its value is nowhere recorded
            lines.append(f"        self.env_vars[{name!r}] = '$' + {name!r}")
        else:
            lines.append(f"        self.env_vars[{name!r}] = {_filled(app, text, names)}")
    placed = [name for name in AS_IT_IS if name in names]
    command = [_filled(app, word, names) for word in app.command]
    if placed:
        run = ["'run'"] + [w for n in placed for w in (repr(f"--{n}"), f"self.{names[n]}")]
        if "bind" in names and "threads" in names:
            run += ["'-n'", f"self.{names['threads']}"]
        command = ["'meshmark'", *run, "'--'", *command]
    lines.append(f"        self.executable = {command[0]}")
    options = ", ".join(command[1:])
    lines.append(f"        self.executable_opts = [shlex.quote(word) for word in [{options}]]")
    if before := _before(app, names):
        lines += ["        self.prerun_cmds = [", *(f"            {line}," for line in before), "        ]"]
    # ReFrame searches one file, standard output.
    after = [_line(app, ("cat", app.output), names)] if app.output else []
    if app.verify.command:
        after.append(f"{_line(app, app.verify.command, names)} + ' && echo {_VERIFIED}'")
    if after:
        lines.append(f"        self.postrun_cmds = [{', '.join(after)}]")
    return lines


def _before(app: Application, names: Mapping[str, str]) -> list[str]:
    """Shell commands before the run: files, inputs and the build."""
    found = [] if app.scratch else [repr(f"cd {shlex.quote(str(app.source))}")]
    found += ["'mkdir -p inputs build'"] if app.prepare or app.build else []
    for name, text in app.files.items():
        folder = name.rpartition("/")[0]
        found += [repr(f"mkdir -p {shlex.quote(folder)}")] if folder else []
        found.append(f"'printf %s ' + shlex.quote({_filled(app, text, names)}) + {' > ' + shlex.quote(name)!r}")
    for command in app.prepare:
        found.append("'(cd inputs && ' + " + _line(app, command, names) + " + ')'")
    for name in app.links:
        folder = name.rpartition("/")[0]
        found += [repr(f"mkdir -p {shlex.quote(folder)}")] if folder else []
        found.append(repr(f'ln -s "$PWD"/inputs/{shlex.quote(name)} {shlex.quote(name)}'))
    for build, table in app.build.items():
        found += [
            f"{_line(app, command, names)} if self.{names['build']} == {build!r} else 'true'"
            for command in table.commands
        ]
    return found


def _line(app: Application, command: tuple[str, ...], names: Mapping[str, str]) -> str:
    """An expression for a command line."""
    return f"shlex.join([{', '.join(_filled(app, word, names) for word in command)}])"


def _filled(app: Application, text: str, names: Mapping[str, str]) -> str:
    """An expression of Python for a text with placeholders."""
    values = {name: f"\0self.{identifier}\0" for name, identifier in names.items() if name != "build"}
    values |= {name: "1" for name in COUNTS if name not in names}
    values |= {"source": str(app.source)}
    values |= {"copy": "0", "inputs": "\0self.stagedir + '/inputs'\0", "build": "\0self.stagedir + '/build'\0"}
    parts = filled(text, values).split("\0")
    made = [f"str({p})" if i % 2 else repr(p) for i, p in enumerate(parts) if p]
    return " + ".join(made) or "''"


def _sanity(app: Application) -> list[str]:
    found = ["sn.assert_eq(self.job.exitcode, 0)"]
    wanted = app.verify
    if wanted.pattern and wanted.expected is None:
        found.append(f"sn.assert_found({wanted.pattern!r}, self.stdout)")
    elif wanted.pattern:
        group = 1 if re.compile(wanted.pattern).groups else 0
        value = f"sn.extractsingle({wanted.pattern!r}, self.stdout, {group}, float, -1)"
        reach = max(wanted.tolerance * abs(wanted.expected or 0.0), wanted.absolute)
        found.append(f"sn.assert_le(abs({value} - {wanted.expected!r}), {reach!r})")
    if wanted.command:
        found.append(f"sn.assert_found({_VERIFIED!r}, self.stdout)")
    return found


def _performance(app: Application) -> list[str]:
    if not app.figure.pattern:
        return []
    group = 1 if re.compile(app.figure.pattern).groups else 0
    return [
        "",
        f"    @performance_function({app.figure.unit!r})",
        "    def figure_of_merit(self):",
        f"        found = sn.extractsingle({app.figure.pattern!r}, self.stdout, {group}, float, -1)",
        f"        return found * {app.figure.scale!r}",
    ]


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"_{text}" if text[:1].isdigit() else f"{text}_" if keyword.iskeyword(text) else text
