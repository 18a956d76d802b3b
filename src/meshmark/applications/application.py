r"""Reads applications: programs of the user, with their figure of merit, their verification and their dimensions.

[application]
name = "stencil"
command = "{build}/stencil {size}"      # words as in a shell, or a list; {NAME} is a dimension or a folder
package = "…"                           # the error names it if the program is not installed

[figure]                                # by default, the elapsed time counts
pattern = 'rate: (\S+) GB/s'
unit = "B/s"
scale = 1e9
better = "higher"

[verify]                                # a run counts only if all of this holds
pattern = 'norm: (\\S+)'
expected = 0.25
tolerance = 1e-9                        # relative
command = "cmp out.dat {source}/expected.dat"

[dimensions]                            # all combinations run; names in capitals are environment variables
threads = "1,2,4"
size = [1000, 2000]

[files]                                 # written into the folder of each run
"input.txt" = "size {size}"

[build.O3]
commands = ["gcc -O3 -fopenmp {source}/stencil.c -o {build}/stencil"]
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from meshmark.applications.resources.machine_limits import METHODS, NEIGHBOURS, cache_bytes, clock_hz
from meshmark.applications.resources.prefetcher_switch import SETTINGS
from meshmark.errors import AbsentError, UsageError, near, quoted
from meshmark.experiments.figure import DIRECTIONS, FigureOfMerit
from meshmark.experiments.setting import AS_IT_IS
from meshmark.place.candidates import SCHEDULERS, WAITS
from meshmark.place.native import vocabulary
from meshmark.store.files import parse_toml, read_text
from meshmark.values import grammar
from meshmark.values.expressions import compiled
from meshmark.values.inputs import LIST, PRINTABLE, Input, Name, OneOf, checked, fields_of
from meshmark.values.secrets import hide_command, hide_values

# What each of these dimensions sets. Other names are placeholders, or environment variables if they are in capitals.
DIMENSIONS: Final = {
    "threads": "OMP_NUM_THREADS, and the slots of bind",
    "copies": "how many copies run at once",
    "ranks": "MPI ranks, started by mpirun",
    "bind": "policy of meshmark run",
    "memory": "memory policy of meshmark run",
    "pages": "page size of meshmark run",
    "build": "one of the builds",
    "wait": "OMP_WAIT_POLICY",
    "scheduler": "scheduling class",
    "cache": "part of the last-level caches that it may fill",
    "cache_method": "how the caches are limited",
    "clock": "limit of the clock",
    "prefetchers": "whether the hardware prefetchers are on",
}
COUNTS: Final = ("threads", "copies", "ranks")
FOLDERS: Final = {
    "source": "folder of the application file",
    "inputs": "folder in which prepare ran",
    "build": "folder of the build",
    "copy": "number of the copy, from 0",
    "meshmark": "the program meshmark",
}
MAX_CONFIGURATIONS: Final = 4096
_MAX_BYTES: Final = 1 << 20
_MAX_COUNT: Final = 4096
_MAX_PATH: Final = 1000
_MAX_PART: Final = 200  # bytes of a file name; file systems allow 255
_MAX_MIB: Final = 1e9  # about 1 PiB, so that the number of bytes fits into the kernel's integers
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|(?<!\$)\{(\w+)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,59}")


def _words(value: object) -> object:
    """Split a text into the words of a command as a shell does; return other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"found '{quoted(value, 60)}', which is not a valid command line: {error}") from error


def _nonempty(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0] or any("\0" in word for word in words):
        raise ValueError("allowed: a command and its arguments")
    return words


Command = Annotated[
    tuple[str, ...],
    LIST,
    BeforeValidator(_words),
    AfterValidator(_nonempty),
    Field(description="a command line, or a list of texts such as ['./a.out', '100']"),
]
Commands = Annotated[tuple[Command, ...], LIST, Field(description="a list of command lines")]


def _pattern(text: str) -> str:
    compiled(text)
    return text


Pattern = Annotated[str, Field(max_length=2000, description="a regular expression"), AfterValidator(_pattern)]


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError("allowed: text and numbers")
    return str(value)


def is_name(text: str) -> bool:
    """Return whether an application can have this name."""
    return bool(_NAME.fullmatch(text))


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError("allowed: a name of letters, digits, _ and -")
    return text


def _file_name(text: str) -> str:
    path = PurePosixPath(text)
    if not text or not text.isprintable() or path.is_absolute() or not path.parts or ".." in path.parts:
        raise ValueError("allowed: a path below the folder of the run")
    if len(os.fsencode(text)) > _MAX_PATH or any(len(os.fsencode(part)) > _MAX_PART for part in path.parts):
        raise ValueError(f"allowed: a path of at most {_MAX_PATH} B, with names of at most {_MAX_PART} B")
    return text


def _variable(text: str) -> str:
    if not text or not text.isprintable() or "=" in text:
        raise ValueError("allowed: a name of an environment variable")
    return text


def _list(value: object) -> object:
    """Return the values of a dimension from a list, a number, or a text such as `1,2,4` or `1..4`."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


Values = Annotated[
    tuple[Annotated[str, BeforeValidator(_text)], ...],
    LIST,
    BeforeValidator(_list),
    Field(min_length=1, description="a list of values, or a text such as '1,2,4'"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTable(Input):
    """[figure]: a printed number times `scale` has the unit `unit`."""

    pattern: Pattern = ""
    unit: Annotated[str, Field(min_length=1, max_length=30), PRINTABLE] = "1"
    scale: Annotated[float, Field(gt=0)] = 1.0
    better: Annotated[str, OneOf(DIRECTIONS)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTable(Input):
    """[verify]: the number that the pattern finds may differ from `expected` by the larger of both tolerances."""

    pattern: Pattern = ""
    expected: float | None = None
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-6  # relative
    absolute: Annotated[float, Field(ge=0)] = 0.0
    command: Command | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsTable(Input):
    """[limits] of a run: `memory_mib` limits each process, `output_mib` limits everything that the run writes."""

    timeout_s: Annotated[float, Field(gt=0, le=1e6)] = 600.0
    memory_mib: Annotated[float, Field(gt=0, le=_MAX_MIB)] | None = None
    output_mib: Annotated[float, Field(gt=0, le=_MAX_MIB)] = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTable(Input):
    """[build.NAME]: commands, or a spec of Spack whose installation becomes `{build}`."""

    commands: Commands = ()
    spack: Annotated[str, Field(max_length=500), PRINTABLE] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationTable(Input):
    """[application].

    Attributes:
        prepare: Commands that make the inputs once, in the folder `{inputs}`.
        links: Files of `{inputs}` that are linked into the folder of each run, for programs that read them there.
        output: File of results in which the figure and the verification also look for their patterns.
        profile: True if each configuration runs once more under the system's sampling profiler.
    """

    name: Annotated[Name, Field(description="a name of letters, digits, _ and -"), AfterValidator(_name)] = "app"
    about: Annotated[str, Field(max_length=400), PRINTABLE] = ""
    command: Command
    package: Annotated[str, Field(max_length=200), PRINTABLE] = ""
    prepare: Commands = ()
    links: Annotated[tuple[Annotated[str, AfterValidator(_file_name)], ...], LIST] = ()
    output: Annotated[str, Field(max_length=200), PRINTABLE] = ""
    profile: bool = False
    env: Mapping[Annotated[str, AfterValidator(_variable)], Annotated[str, BeforeValidator(_text)]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFile(Input):
    """The tables of an application file, checked, before they are converted to an `Application`."""

    application: ApplicationTable
    figure: FigureTable = FigureTable()
    verify: VerifyTable = VerifyTable()
    limits: LimitsTable = LimitsTable()
    dimensions: Mapping[Annotated[str, AfterValidator(_name)], Values] = field(default_factory=dict)
    files: Mapping[Annotated[str, AfterValidator(_file_name)], str] = field(default_factory=dict)
    build: Mapping[Annotated[str, AfterValidator(_name)], BuildTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application(ApplicationTable):
    """A valid application.

    Attributes:
        source: Folder of the application file, `{source}`.
        dimensions: Values by name, in the order of the file.
    """

    source: Path
    figure: FigureTable
    verify: VerifyTable
    limits: LimitsTable
    dimensions: Mapping[str, tuple[str, ...]]
    files: Mapping[str, str]
    build: Mapping[str, BuildTable]

    @property
    def judged_by(self) -> FigureOfMerit:
        """Return the pattern of the figure of merit in the output, and which direction is better."""
        return FigureOfMerit(self.figure.pattern, "", self.figure.better)

    @property
    def scratch(self) -> bool:
        """Return whether each run has a separate folder instead of the folder of the application file."""
        return bool(self.files or self.prepare or self.build)


def shipped() -> dict[str, Path]:
    """Return the application files that belong to Meshmark, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "files").glob("*.toml"))}


def application_file(name: str) -> Path:
    """Return the file of an application.

    Args:
        name: A name in `shipped`, or a path.

    Raises:
        UsageError: The file does not exist.
    """
    files = shipped()
    if name in files:
        return files[name]
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"FILE: found '{quoted(name)}'; allowed: a file, {', '.join(files)}", near(name, files))
    return path


def named_tables(name: str, dimensions: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], Path]:
    """Return the tables of an application, with other values of some dimensions, and the folder of its file.

    Args:
        name: A name in `shipped`, or a path relative to `folder`.
        dimensions: Values that replace or extend the dimensions of the file.
        folder: Folder to which a path is relative.

    Raises:
        UsageError: The file does not exist, or is not valid TOML.
    """
    path = application_file(name if name in shipped() else str(folder / name))
    tables = parse_toml(read_text(path, _MAX_BYTES), str(path))
    if dimensions:
        dimensions_of_file = tables.get("dimensions", {})
        tables["dimensions"] = {**(dimensions_of_file if isinstance(dimensions_of_file, dict) else {}), **dimensions}
    application_table = tables.get("application")
    if isinstance(application_table, dict) and "name" not in application_table and is_name(path.stem):
        tables["application"] = {"name": path.stem, **application_table}
    return tables, path.absolute().parent


def read_application(path: Path) -> Application:
    """Read an application from its file.

    Raises:
        UsageError: One line that names the file, the key, what was found and what is allowed.
    """
    return parse_application(read_text(path, _MAX_BYTES), str(path), path.absolute().parent)


def parse_application(toml: str, where: str, source: Path) -> Application:
    """Read an application from TOML text.

    Args:
        toml: Content of an application file.
        where: Name of the text in errors.
        source: The folder `{source}`.

    Raises:
        UsageError: See `read_application`.
    """
    return of_tables(parse_toml(toml, where), where, source)


def of_tables(tables: Mapping[str, Any], where: str, source: Path) -> Application:
    """Return the application that the tables of a file describe, with the values of secrets hidden.

    Raises:
        UsageError: See `read_application`.
    """
    file = checked(ApplicationFile, hide_secrets(tables), where)
    if file.build and "build" not in file.dimensions:
        file = replace(file, dimensions={**file.dimensions, "build": tuple(file.build)})
    others = {key: value for key, value in fields_of(file).items() if key != "application"}
    return _checked(Application(source=source, **fields_of(file.application), **others), where)


# ------------------------------------------------------------------ checks that types cannot express


def _checked(app: Application, where: str) -> Application:
    if app.figure.pattern and not app.figure.better:
        raise UsageError(f"{where}: figure.better: required with a pattern; allowed: {', '.join(DIRECTIONS)}")
    if app.figure.better and not app.figure.pattern:
        raise UsageError(f"{where}: figure.better: found without a pattern; lower elapsed time is always better")
    if app.verify.expected is not None and not app.verify.pattern:
        raise UsageError(f"{where}: verify.expected: found without a pattern that matches the number")
    if app.links and not app.prepare:
        raise UsageError(f"{where}: application.links: found without application.prepare, which creates these files")
    _check_files(app, where)
    app = replace(app, dimensions={name: _values(name, v, app, where) for name, v in app.dimensions.items()})
    if (count := math.prod(map(len, app.dimensions.values()))) > MAX_CONFIGURATIONS:
        raise UsageError(f"{where}: dimensions: found {count} combinations; allowed: {MAX_CONFIGURATIONS}")
    _check_bind(app, where)
    placeholder_names = used_names(app, where)
    for name in app.dimensions:
        if name not in DIMENSIONS and not name.isupper() and name not in placeholder_names:
            raise UsageError(
                f"{where}: dimensions.{name}: not used by any command, file or variable",
                f"write {{{name}}} where it belongs, or use capitals for an environment variable",
            )
    return app


def _check_bind(app: Application, where: str) -> None:
    """Raise UsageError if a policy would confine threads to too few CPUs, or to CPUs that neighbours occupy."""
    if "cache_method" in app.dimensions and "cache" not in app.dimensions:
        raise UsageError(f"{where}: dimensions.cache_method: found without cache, which it limits")
    if NEIGHBOURS in app.dimensions.get("cache_method", ()) and set(app.dimensions.get("bind", ())) - {"none"}:
        message = f"found with cache_method={NEIGHBOURS}, which chooses the CPUs"
        raise UsageError(f"{where}: dimensions.bind: {message}; allowed: none")
    if all(word == "none" or word[:1].isdigit() for word in app.dimensions.get("bind", ())):
        return
    threads = app.dimensions.get("threads", ())
    if "ranks" in app.dimensions and any(count != "1" for count in threads):
        raise UsageError(f"{where}: dimensions.bind: found with ranks of several threads; a rank gets one CPU")
    if "ranks" not in app.dimensions and not threads:
        raise UsageError(
            f"{where}: dimensions.bind: found without threads, which state how many CPUs a policy chooses",
            "--vary threads=1 for a program of one thread",
        )


def _check_files(app: Application, where: str) -> None:
    """Raise UsageError if the files and links of a run conflict, for example if one is a folder of another."""
    origins = {PurePosixPath(name): f"files.{quoted(name)}" for name in app.files}
    for name in (*app.files, *app.links):
        if match := next((m for m in _PLACEHOLDER.finditer(name) if m[1]), None):
            key = "application.links" if name in app.links else "files"
            raise UsageError(f"{where}: {key}: found {match[0]} in the name '{quoted(name)}'; allowed: a fixed name")
    for link in app.links:
        path = PurePosixPath(link)
        if path in origins:
            raise UsageError(f"{where}: application.links: found '{quoted(link)}', which is also {origins[path]}")
        origins[path] = "application.links"
    for path, key in origins.items():
        if parent := next((p for p in path.parents if p in origins), None):
            raise UsageError(f"{where}: {key}: found '{quoted(path)}' below '{quoted(parent)}', which is not a folder")


def _values(name: str, values: tuple[str, ...], app: Application, where: str) -> tuple[str, ...]:
    key = f"{where}: dimensions.{name}"
    if name in FOLDERS and name not in DIMENSIONS:
        raise UsageError(f"{key}: found the name of a folder; allowed: any name except {', '.join(FOLDERS)}")
    if name in COUNTS:
        return tuple(map(str, grammar.integers(key, ",".join(values), _MAX_COUNT)))
    for value in values:
        if name == "cache":
            cache_bytes(key, value)
        elif name == "clock":
            clock_hz(key, value)
    words = _allowed(name, app)
    for value in values:
        word = re.split("[=,]", value)[0] if name in AS_IT_IS else value  # policies have modifiers
        if words is not None and word not in words and not (name == "bind" and word[:1].isdigit()):
            raise UsageError(f"{key}: found '{quoted(word)}'; allowed: {', '.join(words) or 'none'}", near(word, words))
    if len(set(values)) < len(values):
        raise UsageError(f"{key}: found a value twice: {', '.join(values)}")
    return values


def _allowed(name: str, app: Application) -> tuple[str, ...] | None:
    """Return the allowed words of a dimension; None if any word is allowed."""
    match name:
        case "bind":
            return ("none", *vocabulary().policies)
        case "memory":
            return vocabulary().memory
        case "pages":
            return vocabulary().pages
        case "build":
            return tuple(app.build)
        case "wait":
            return WAITS
        case "scheduler":
            return SCHEDULERS
        case "cache_method":
            return METHODS
        case "prefetchers":
            return SETTINGS
    return None


def hide_secrets(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of an application file with the values of secrets in variables and commands replaced."""

    def changed(name: str, **change: Callable[[Any], Any]) -> None:
        table = result.get(name)
        if isinstance(table, Mapping):
            result[name] = {**table, **{key: hide(table[key]) for key, hide in change.items() if key in table}}

    def hide_commands(commands: Any) -> Any:
        return [hide_command(command) for command in commands] if isinstance(commands, list | tuple) else commands

    result = dict(tables)
    changed("application", command=hide_command, prepare=hide_commands, env=hide_values)
    changed("verify", command=hide_command)
    if isinstance(builds := result.get("build"), Mapping):
        result["build"] = {
            name: {**build, "commands": hide_commands(build["commands"])}
            if isinstance(build, Mapping) and "commands" in build
            else build
            for name, build in builds.items()
        }
    if "dimensions" in result:
        result["dimensions"] = hide_values(result["dimensions"], is_list=True)
    return result


def used_names(app: Application, where: str) -> set[str]:
    """Return the names in braces in all texts.

    Raises:
        UsageError: A name is unknown.
    """
    texts = {
        "application.command": app.command,
        "application.prepare": [word for command in app.prepare for word in command],
        "application.env": app.env.values(),
        "application.output": [app.output],
        "verify.command": app.verify.command or (),
        "files": app.files.values(),
        **{f"build.{n}.commands": [w for c in b.commands for w in c] for n, b in app.build.items()},
    }
    known = {*FOLDERS, *app.dimensions, *COUNTS}
    names: set[str] = set()
    for key, words in texts.items():
        for word in words:
            for match in _PLACEHOLDER.finditer(word):
                if (name := match[1]) is None:
                    continue
                if name not in known:
                    raise UsageError(
                        f"{where}: {key}: found {{{name}}}, which is not a dimension; "
                        f"allowed: {', '.join(sorted(known))}",
                        f"write {{{{{name}}}}} for a brace",
                    )
                names.add(name)
    return names


def absent(app: Application, program: str, folder: Path) -> AbsentError | None:
    """Return the error for a program that is not installed, with the package that contains it; None if it is installed.

    Args:
        app: The application, which names the package.
        program: A name that is searched in PATH, or a path.
        folder: Folder to which paths of programs are relative.
    """
    path = shutil.which(program if "/" not in program else str(folder / program))
    return not_installed(app, program) if path is None else None


def not_installed(app: Application, program: str) -> AbsentError:
    """Return the error for a program that is not installed, with the package that contains it."""
    package = app.package and f"; it is in the package {app.package}"
    return AbsentError(f"{app.name}: found no program {quoted(program)}{package}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its placeholders replaced, and with `{{` and `}}` replaced by single braces."""
    return _PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]) if m[1] else m[0][0], text)
