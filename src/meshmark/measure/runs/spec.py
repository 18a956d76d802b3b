"""Reads and validates the specification of a survey.

A specification is a TOML file such as this:

name = "quick"

[[step]]
instrument = "latency"
repetitions = 1                  # fresh processes
options = { footprint = "4KiB..1GiB", pages = "4KiB,thp", budget = "10s" }

[[step]]                         # only in specifications of fleets
application = "stencil.toml"     # a file beside this one, or a name of meshmark list applications
runs = 3                         # fresh processes, whose median is the result
warmup = 1                       # preceding runs, whose results are dropped
dimensions = { threads = 4 }     # one value for each dimension with several values in the file
output_kib = 64                  # size of the end of each output that is searched
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from meshmark.describe import description
from meshmark.errors import AbsentError, UsageError, near, quoted
from meshmark.measure.runs.probe import arguments, planned
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import LIST, PRINTABLE, Input, checked

MAX_BYTES = 1 << 20
_NAME: Final = "a name of at most 60 letters, digits, _ . -"
SHIPPED = ("quick", "full", "load", "load-quick", "communicate", "node-survey", "node-check")


@dataclass(frozen=True, slots=True)
class StepSpec(Input):
    """One step: an instrument with its command-line options, without dashes, or an application.

    Attributes:
        each_node: Whether the step is measured from the CPUs of each node to the memory of each node. The plan then
            sets the options `cpus` and `memory_node`; a machine with one memory node has no such step.
        runs, warmup, dimensions, output_kib: Only for applications; None or empty if not given.
    """

    instrument: str = ""
    application: Annotated[str, Field(max_length=1000), PRINTABLE] = ""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$", max_length=60, description=_NAME)] = ""
    repetitions: Annotated[int, Field(ge=1, le=100)] = 1
    options: dict[str, Any] = field(default_factory=dict)
    each_node: bool = False
    runs: Annotated[int, Field(ge=1, le=100)] | None = None
    warmup: Annotated[int, Field(ge=0, le=100)] | None = None
    dimensions: dict[str, str | int | float] = field(default_factory=dict)
    output_kib: Annotated[int, Field(ge=1, le=512)] | None = None

    @property
    def base(self) -> str:
        """Return the name of the step's runs, unless an earlier step has the same name."""
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", Path(self.application).stem)[:60]
        return self.name or self.instrument or stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Input):
    """A whole survey."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=60, description=_NAME)]
    summary: str = ""
    step: Annotated[tuple[StepSpec, ...], LIST, Field(min_length=1, description="at least one table [[step]]")]


def parse_spec(text: str, origin: str, *, applications: bool = False) -> Spec:
    """Parse and validate a specification.

    Args:
        text: The TOML document.
        origin: The name of the document in error messages.
        applications: Whether steps may have applications; their files are not read.

    Raises:
        UsageError: The specification is invalid; the message names the field, what was found and what is allowed.
    """
    spec = checked(Spec, parse_toml(text, origin), origin)
    for number, step in enumerate(spec.step):
        _check_kind(step, f"{origin}: step[{number}]", applications)
        if step.application:
            continue
        try:
            d = description(step.instrument)
            with contextlib.suppress(AbsentError):  # the step will be absent
                planned(d, arguments(d, step.options))
        except UsageError as error:
            raise UsageError(f"{origin}: step[{number}]: {error}", error.hint) from error
    return spec


_OF_APPLICATIONS: Final = ("runs", "warmup", "dimensions", "output_kib")
_OF_NODES: Final = ("cpus", "memory_node")


def _check_kind(step: StepSpec, at: str, applications: bool) -> None:
    """Raise UsageError unless a step is an instrument or an application, with keys of its kind only."""
    if bool(step.application) == bool(step.instrument):
        message = "both" if step.application else "neither"
        raise UsageError(f"{at}: found {message} of instrument and application; one of them is required")
    if step.application and not applications:
        message = f"{at}: application: found '{quoted(step.application)}'; allowed: in steps of meshmark fleet only"
        raise UsageError(message, f"meshmark measure app {quoted(step.application)}")
    if step.application and step.options:
        raise UsageError(f"{at}: options: found with an application; its values are in dimensions")
    if step.each_node and not step.instrument:
        raise UsageError(f"{at}: each_node: found with an application; allowed: with an instrument")
    for key in step.options if step.each_node else ():
        if key.replace("-", "_") in _OF_NODES:
            raise UsageError(f"{at}: options.{key}: found with each_node, which sets it")
    for key in _OF_APPLICATIONS if step.instrument else ():
        if getattr(step, key) not in (None, {}):
            raise UsageError(f"{at}: {key}: found with an instrument; allowed: with an application")


def load_spec(name_or_path: str, *, applications: bool = False) -> Spec:
    """Return a shipped specification by name (`quick`, `full`, …), or a specification from a file.

    Args:
        name_or_path: Name of a shipped specification, or path of a file.
        applications: See `parse_spec`.

    Raises:
        UsageError: The file does not exist or is invalid.
    """
    if name_or_path in SHIPPED:
        text = (resources.files("meshmark.measure") / "specs" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return parse_spec(text, f"{name_or_path}.toml")
    path = Path(name_or_path)
    if not path.suffix and not path.exists():
        message = f"--spec: found '{quoted(name_or_path)}'; allowed: {', '.join(SHIPPED)}, or a file"
        raise UsageError(message, near(name_or_path, SHIPPED))
    return parse_spec(read_text(path, MAX_BYTES), name_or_path, applications=applications)
