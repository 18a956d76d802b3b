"""Validates the models against published statements.

`machine_facts.toml` lists the statements with published value, tolerance and role; `claims` has one check per
statement. Roles: `structure` follows from arithmetic or topology; `calibrate` may have determined parameters; `assumed`
restates what was put into a machine file or a check; `predict` does none of this. A statement that a machine file was
fitted to never counts as predicted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.model.machine import MachineFile, machine_names
from meshmark.model.statements import claims
from meshmark.validation.models import altix, cray_x1, e325, gs1280, xeon5500  # noqa: F401 (the modules register their checks)
from meshmark.validation.models.base import (
    CHECKS,
    Check,
    Finding,
    Row,
    Sensitivity,
    examined,
    machine,
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


CHANGE: Final = 1.1  # of an assumed number, to see what follows it
ONE_FOR_ONE: Final = (0.8, 1.25)  # a result with such an elasticity restates the number
DIVISIBLE: Final = (
    "_ns",
    "_us",
    "_gb_per_s",
    "_ghz",
    "_cycles",
    "_clocks",
    "_share",
)  # units; others are counts or sizes
SIZES: Final = ("_bytes", "_kib")
# Not varied: with the flits of a packet it says how many bytes carry a line, and the line is known.
FRAMING: Final = "router.flit_bytes"


@dataclass(frozen=True, slots=True)
class Assumed:
    """An assumed number of a machine file, or an element of an assumed list."""

    key: str
    element: int  # of a list; -1: a plain number
    value: float

    @property
    def changed(self) -> float:
        """A tenth more; of a count at least one more; of a size twice as much."""
        if self.key.endswith(SIZES):
            return 2 * self.value
        more = self.value * CHANGE
        return more if self.key.endswith(DIVISIBLE) else max(self.value + 1, round(more))

    def setting(self, of: MachineFile) -> str:
        """Return the assignment of `--set` that changes it."""
        value = f"{self.changed:.12g}"
        if self.element >= 0:
            elements = [f"{v:.12g}" for v in value_at(of, self.key)]
            elements[self.element] = value
            value = f"[{','.join(elements)}]"
        return f"{self.key}={value}"


def value_at(of: MachineFile, key: str) -> Any:
    """Return a value of a machine by its dotted key; None if there is none."""
    at: Any = of.data
    for part in key.split("."):
        name, _, number = part.rstrip("]").partition("[")
        at = at.get(name) if isinstance(at, dict) else None
        if number and isinstance(at, list):
            at = at[int(number)]
    return at


def assumed_numbers(of: MachineFile) -> list[Assumed]:
    """Return the assumed numbers of a machine, without zeros and without shares of 1, which assume nothing."""
    found = []
    for key, origin in of.origins.items():
        if origin.kind == "assumed" and key != FRAMING:
            value = value_at(of, key)
            each = enumerate(value) if isinstance(value, list) else [(-1, value)]
            numbers = [(i, float(v)) for i, v in each if isinstance(v, int | float) and v > 0]
            found += [Assumed(key, i, v) for i, v in numbers if not (key.endswith("_share") and v == 1)]
    return found


def dependence(check: Check) -> tuple[Sensitivity, ...]:
    """Return how the result of a check follows each assumed number, strongest first; without those that do not matter.

    A number changes in all machines that share it: files that extend the same file and have the same value.
    """
    with examined() as used:
        base = check().numbers
        numbers: dict[tuple[str, Assumed], list[str]] = {}
        for name in sorted(used):
            for number in assumed_numbers(machine(name)):
                numbers.setdefault((machine(name).root, number), []).append(name)
        settings = [number.setting(machine(names[0])) for (_, number), names in numbers.items()]
    found = []
    for ((root, number), names), setting in zip(numbers.items(), settings, strict=True):
        try:
            with examined(dict.fromkeys(names, setting)):
                moved = check().numbers
        except UsageError:
            continue  # the machine does not allow this value
        steps = [math.log(m / b) for m, b in zip(moved, base, strict=False) if m > 0 and b > 0]
        if largest := max(steps, key=abs, default=0.0):
            key = number.key if number.element < 0 else f"{number.key}[{number.element}]"
            found.append(Sensitivity(root, key, largest / math.log(number.changed / number.value)))
    return tuple(sorted((f for f in found if abs(f.elasticity) >= 0.01), key=lambda f: -abs(f.elasticity)))


def restates(row: Row) -> Sensitivity | None:
    """Return the assumed number that the result of a statement on values follows one for one; None if there is none.

    A statement on an order or a sign stays what it is while the numbers move, and restates nothing.
    """
    if not isinstance(row.claim.value, int | float | list):
        return None
    low, high = ONE_FOR_ONE
    return next((d for d in row.depends or () if low <= abs(d.elasticity) <= high), None)


def validate(
    only: Sequence[str] = (), progress: Callable[[int, int], None] | None = None, sensitivity: bool = False
) -> list[Row]:
    """Check all statements, or those in `only`.

    Args:
        sensitivity: Also vary every assumed number that a modelled statement depends on.

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
        depends = dependence(function) if sensitivity and function and finding.numbers else None
        rows.append(Row(claim, finding, fitted_to().get(claim.id, ()), depends))
        if progress is not None:
            progress(number + 1, len(chosen))
    return rows
