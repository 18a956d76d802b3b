"""The publications' statements against the models: published, modelled, error, role, and why where it misses.

One function a statement; its place is `machine_facts.toml`, which gives the published value, the tolerance and the
role: `structure` follows from arithmetic or topology, `calibrate` may have set parameters, `predict` must not have.
A statement that a machine file names as what a number was fitted to never counts as predicted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from meshmark.errors import UsageError
from meshmark.machine.reference import FOLDER
from meshmark.model.claims import altix, cray_x1, e325, gs1280, xeon5500  # noqa: F401 (which register their checks)
from meshmark.model.claims.base import (
    CHECKS,
    Claim,
    Finding,
    Row,
    machine,
)
from meshmark.model.machine import machine_names


@cache
def claims() -> tuple[Claim, ...]:
    """All statements, in the order of the file."""
    import tomllib

    found = tomllib.loads((FOLDER / "machine_facts.toml").read_text(encoding="utf-8"))["claim"]
    return tuple(
        Claim(
            c["id"],
            c["document"],
            c["place"],
            c["quantity"],
            c.get("value"),
            c.get("unit", ""),
            c["tolerance"],
            c["role"],
            c.get("note", ""),
        )
        for c in found
    )


@cache
def fitted_to() -> Mapping[str, tuple[str, ...]]:
    """Statement: the machine files that name it as what a number was fitted to."""
    found: dict[str, set[str]] = {}
    for name in machine_names():
        for origin in machine(name).origins.values():
            if origin.kind == "fitted":
                for one in re.findall(r"\b[A-G][0-9]{2}\b", origin.text):
                    found.setdefault(one, set()).add(name)
    return {k: tuple(sorted(v)) for k, v in found.items()}


def validate(only: Sequence[str] = (), progress: Callable[[int, int], None] | None = None) -> list[Row]:
    """Checks all statements, or those named.

    Raises:
        UsageError: there is no statement of a name in `only`.
    """
    known = {c.id for c in claims()}
    if wrong := [o for o in only if o not in known]:
        raise UsageError(f"validate: found no statement '{wrong[0]}'", f"there are {min(known)} to {max(known)}")
    chosen = [c for c in claims() if not only or c.id in only]
    rows = []
    for number, claim in enumerate(chosen):
        function = CHECKS.get(claim.id)
        finding = function() if function else Finding("not modelled", None, "no model of it yet")
        rows.append(Row(claim, finding, fitted_to().get(claim.id, ())))
        if progress is not None:
            progress(number + 1, len(chosen))
    return rows
