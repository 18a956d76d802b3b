"""Reads and validates the specification of a survey, a TOML file such as this:

name = "quick"

[[step]]
instrument = "latency"
repetitions = 1                  # fresh processes
options = { footprint = "4KiB..1GiB", pages = "4KiB,thp", budget = "10s" }
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from meshmark.describe import description
from meshmark.errors import UsageError, near, quoted
from meshmark.measure.probe import arguments, check
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import LIST, Input, checked

MAX_BYTES = 1 << 20
_NAME: Final = "a name of at most 60 letters, digits, _ . -"
SHIPPED = ("quick", "full", "load", "load-quick", "communicate", "node-survey", "node-check")


@dataclass(frozen=True, slots=True)
class StepSpec(Input):
    """One step: an instrument with its command-line options, without dashes."""

    instrument: str
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$", max_length=60, description=_NAME)] = ""
    repetitions: Annotated[int, Field(ge=1, le=100)] = 1
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Input):
    """A whole survey."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=60, description=_NAME)]
    summary: str = ""
    step: Annotated[tuple[StepSpec, ...], LIST, Field(min_length=1, description="at least one table [[step]]")]


def parse_spec(text: str, origin: str) -> Spec:
    """Parse and validate a specification.

    Args:
        text: The TOML document.
        origin: The name of the document in error messages.

    Raises:
        UsageError: The specification is invalid; the message names the field, what was found and what is allowed.
    """
    spec = checked(Spec, parse_toml(text, origin), origin)
    for number, step in enumerate(spec.step):
        try:
            check(step.instrument, arguments(description(step.instrument), step.options))
        except UsageError as why:
            raise UsageError(f"{origin}: step[{number}]: {why}", why.hint) from why
    return spec


def load_spec(name_or_path: str) -> Spec:
    """A shipped specification by name (`quick`, `full`, …), or one from a file.

    Raises:
        UsageError: The file does not exist or is invalid.
    """
    if name_or_path in SHIPPED:
        text = (resources.files("meshmark.measure") / "specs" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return parse_spec(text, f"{name_or_path}.toml")
    path = Path(name_or_path)
    if not path.suffix and not path.exists():
        found = f"--spec: found '{quoted(name_or_path)}'; allowed: {', '.join(SHIPPED)}, or a file"
        raise UsageError(found, near(name_or_path, SHIPPED))
    return parse_spec(read_text(path, MAX_BYTES), name_or_path)
