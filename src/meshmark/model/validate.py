"""Validates the models against published statements.

`machine_facts.toml` lists the statements with published value, tolerance and role; `claims` has one check per
statement. Roles: `structure` follows from arithmetic or topology, `calibrate` may have determined parameters, `predict`
must not. A statement that a machine file was fitted to never counts as predicted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from meshmark.errors import UsageError
from meshmark.machine.reference import FOLDER
from meshmark.model.claims import altix, cray_x1, e325, gs1280, xeon5500  # noqa: F401 (the modules register their checks)
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
    """Return all statements in the order of the file."""
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
    """Return the machine files that were fitted to each statement."""
    found: dict[str, set[str]] = {}
    for name in machine_names():
        for origin in machine(name).origins.values():
            if origin.kind == "fitted":
                for one in re.findall(r"\b[A-G][0-9]{2}\b", origin.text):
                    found.setdefault(one, set()).add(name)
    return {k: tuple(sorted(v)) for k, v in found.items()}


def validate(only: Sequence[str] = (), progress: Callable[[int, int], None] | None = None) -> list[Row]:
    """Check all statements, or those in `only`.

    Raises:
        UsageError: A statement in `only` is unknown.
    """
    known = {c.id for c in claims()}
    if wrong := [o for o in only if o not in known]:
        raise UsageError(f"validate: found unknown statement '{wrong[0]}'", f"allowed: {min(known)} to {max(known)}")
    chosen = [c for c in claims() if not only or c.id in only]
    rows = []
    for number, claim in enumerate(chosen):
        function = CHECKS.get(claim.id)
        finding = function() if function else Finding("not modelled", None, "there is no model of it yet")
        rows.append(Row(claim, finding, fitted_to().get(claim.id, ())))
        if progress is not None:
            progress(number + 1, len(chosen))
    return rows
