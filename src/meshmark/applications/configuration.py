"""Expands the dimensions of an application into configurations, and builds the command line of each of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from meshmark.applications.application import COUNTS, DIMENSIONS, Application, filled
from meshmark.applications.resources.machine_limits import NEIGHBOURS
from meshmark.experiments.setting import AS_IT_IS
from meshmark.native import openmpi_as_root, openmpi_unbound
from meshmark.place import native
from meshmark.values.secrets import reveal_value, reveal_variables, reveal_words


@dataclass(frozen=True, slots=True)
class Configuration:
    """One combination of values.

    Attributes:
        values: Values by dimension, in the order of the file.
    """

    values: Mapping[str, str]

    @property
    def label(self) -> str:
        """Return a text such as `threads=2 build=O3`; "as it is" without dimensions.

        Different values have different labels.
        """
        return " ".join(f"{name}={_word(value)}" for name, value in self.values.items()) or "as it is"

    def without(self, name: str) -> str:
        """Return the values of all other dimensions, such as `threads=2 build=O3`; "" if there are no others."""
        return " ".join(f"{k}={v}" for k, v in self.values.items() if k != name)

    def count(self, name: str) -> int:
        """Return the number of `threads`, `copies` or `ranks`; 1 if it is not varied."""
        return int(self.values.get(name, "1"))


def varied(all_: Iterable[Configuration], name: str) -> dict[str, list[Configuration]]:
    """Return groups of configurations that differ in one dimension alone, by the values of all other dimensions.

    Each group has at least two configurations.
    """
    groups: dict[str, list[Configuration]] = {}
    for configuration in all_:
        if name in configuration.values:
            groups.setdefault(configuration.without(name), []).append(configuration)
    return {others: members for others, members in groups.items() if len(members) > 1}


def _word(value: str) -> str:
    """Return a value on one line, in quotes if it would be several words."""
    if value.isprintable() and not set(value) & set(' "'):
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


def configurations(app: Application) -> list[Configuration]:
    """Return all combinations of the dimensions. The last dimension changes fastest."""
    return [
        Configuration(dict(zip(app.dimensions, values, strict=True))) for values in product(*app.dimensions.values())
    ]


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a measurement.

    Attributes:
        root: Folder of the measurement.
        here: Folder of the current run; None for `run` in `root`.
    """

    root: Path
    here: Path | None = None

    @property
    def inputs(self) -> Path:
        """Return the folder for input files, which all configurations share."""
        return self.root / "inputs"

    def build(self, name: str) -> Path:
        """Return the folder of the build `name`."""
        return self.root / "build" / name

    @property
    def run(self) -> Path:
        """Return the folder of the current run."""
        return self.here or self.root / "run"


def placeholders(app: Application, configuration: Configuration, folders: Folders, copy: int = 0) -> dict[str, str]:
    """Return the values of all names in braces."""
    build = configuration.values.get("build", "")
    return {
        **dict.fromkeys(COUNTS, "1"),
        **reveal_variables(configuration.values),
        "source": str(app.source),
        "inputs": str(folders.inputs),
        "build": str(folders.build(build)) if build else "",
        "copy": str(copy),
        "meshmark": str(Path(sys.executable).with_name("meshmark")),
    }


def environment(app: Application, configuration: Configuration, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a run in addition to the environment of this process."""
    variables = openmpi_as_root() if "ranks" in configuration.values else {}
    is_confined = configuration.values.get("cache_method") == NEIGHBOURS
    if (
        "ranks" in configuration.values
        and (configuration.count("copies") > 1 or is_confined)
        and configuration.values.get("bind", AS_IT_IS["bind"]) == AS_IT_IS["bind"]
    ):
        # The launcher of each copy would bind its ranks to the same first cores, whatever CPUs it may use.
        variables |= openmpi_unbound()
    variables |= {name: filled(reveal_value(name, text), values) for name, text in app.env.items()}
    if "threads" in configuration.values:
        variables["OMP_NUM_THREADS"] = configuration.values["threads"]
    if "wait" in configuration.values:
        variables["OMP_WAIT_POLICY"] = configuration.values["wait"]
    variables.update(
        {n: reveal_value(n, v) for n, v in configuration.values.items() if n not in DIMENSIONS and n.isupper()}
    )
    return variables


def argv(
    app: Application, configuration: Configuration, values: Mapping[str, str], record: Path, *, observed: bool
) -> list[str]:
    """Return the command line of one copy.

    Args:
        app: Application with the words of its command.
        configuration: Values of its dimensions, which include the options of the placer.
        values: Values of `placeholders`.
        record: File for times and observations.
        observed: Also observe where the threads and pages are, which takes some time of another CPU.
    """
    options = [w for name, default in AS_IT_IS.items() for w in (f"--{name}", configuration.values.get(name, default))]
    bind = configuration.values.get("bind", AS_IT_IS["bind"])
    if "ranks" in configuration.values:
        options += ["--launcher", "openmpi", "-n", configuration.values["ranks"]]
    elif bind != AS_IT_IS["bind"] and not bind[:1].isdigit():
        options += ["-n", configuration.values.get("threads", "1")]
    options += ["--verify"] if observed else []
    command = [filled(word, values) for word in reveal_words(app.command)]
    return [str(native.find_place()), "run", *options, "--record", str(record), "--", *command]
