"""A survey's specification: TOML in, validated steps out.

name = "quick"

[[step]]
instrument = "latency"
repetitions = 1                  # fresh processes
options = { footprint = "4KiB..1GiB", pages = "4KiB,thp", budget = "10s" }
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from meshmark.describe import description
from meshmark.errors import UsageError, quoted
from meshmark.measure.probe import check, words
from meshmark.store.files import parse_toml, read_text

MAX_BYTES = 1 << 20
SHIPPED = ("quick", "full", "load", "load-quick", "communicate")


class StepSpec(BaseModel):
    """One call of one instrument; `options` are its own, as on the command line without dashes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instrument: str
    name: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]*$", max_length=60)
    repetitions: int = Field(default=1, ge=1, le=100, strict=True)  # true is no number
    options: dict[str, Any] = Field(default_factory=dict)


class Spec(BaseModel):
    """A whole survey."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=60)
    summary: str = ""
    step: list[StepSpec] = Field(min_length=1)


def parse_spec(text: str, origin: str) -> Spec:
    """A spec from TOML text.

    Raises:
        UsageError: names the file, the field, what was found and what is allowed.
    """
    raw = parse_toml(text, origin)
    try:
        spec = Spec.model_validate(raw)
    except ValidationError as why:
        first = why.errors()[0]
        place = ".".join(quoted(p) for p in first["loc"]) or "the file"
        found = quoted(first.get("input"), 60)
        allowed = first["msg"]
        if first["type"] == "extra_forbidden":
            model = StepSpec if len(first["loc"]) > 1 else Spec
            allowed = "allowed keys are " + ", ".join(model.model_fields)
        raise UsageError(f"{origin}: {place}: found {found!r}; {allowed}") from why
    for number, step in enumerate(spec.step):
        try:
            check(step.instrument, words(description(step.instrument), step.options))
        except UsageError as why:
            raise UsageError(f"{origin}: step.{number}: {why}", why.hint) from why
    return spec


def load_spec(name_or_path: str) -> Spec:
    """A shipped spec by name (`quick`, `full`) or a file.

    Raises:
        UsageError: no such file, or it is wrong.
    """
    if name_or_path in SHIPPED:
        text = (resources.files("meshmark.measure") / "specs" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return parse_spec(text, f"{name_or_path}.toml")
    return parse_spec(read_text(Path(name_or_path), MAX_BYTES), name_or_path)
