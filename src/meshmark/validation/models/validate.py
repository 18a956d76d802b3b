"""Validates the models against published statements.

`machine_facts.toml` lists the statements with published value, tolerance and role; `CHECKS` has one check per
statement. The role of a statement is `structure` if it follows from arithmetic or topology, `calibrate` if it may have
determined parameters, `assumed` if it restates the contents of a machine file or of a check, and `predict` otherwise. A
statement to which a machine file was fitted never counts as predicted.
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
    Sensitivity,
    StatementResult,
    StatementRow,
    examined,
    machine,
)


@cache
def fitted_to() -> Mapping[str, tuple[str, ...]]:
    """Return the machine files that were fitted to each statement."""
    machines_of_statement: dict[str, set[str]] = {}
    for name in machine_names():
        for origin in machine(name).origins.values():
            if origin.kind == "fitted":
                for statement in re.findall(r"\b[A-G][0-9]{2}\b", origin.text):
                    machines_of_statement.setdefault(statement, set()).add(name)
    return {k: tuple(sorted(v)) for k, v in machines_of_statement.items()}


CHANGE: Final = 1.1  # factor by which an assumed number changes, to determine which results depend on it
ONE_FOR_ONE: Final = (0.8, 1.25)  # a result with an elasticity in this range restates the number
DIVISIBLE: Final = (
    "_ns",
    "_us",
    "_gb_per_s",
    "_ghz",
    "_cycles",
    "_clocks",
    "_share",
)  # units; keys with other endings are counts or sizes
SIZES: Final = ("_bytes", "_kib")
# Not varied: together with the flits of a packet it determines the bytes that carry a line, which are known.
FRAMING: Final = "router.flit_bytes"


@dataclass(frozen=True, slots=True)
class AssumedNumber:
    """An assumed number of a machine file, or an element of an assumed list."""

    key: str
    element: int  # index in a list; -1 for a plain number
    value: float

    @property
    def changed(self) -> float:
        """Return the changed number: 10 % more; for a count, at least one more; for a size, twice as much."""
        if self.key.endswith(SIZES):
            return 2 * self.value
        increased = self.value * CHANGE
        return increased if self.key.endswith(DIVISIBLE) else max(self.value + 1, round(increased))

    def setting(self, machine: MachineFile) -> str:
        """Return the assignment of `--set` that changes this number."""
        value = f"{self.changed:.12g}"
        if self.element >= 0:
            elements = [f"{v:.12g}" for v in value_at(machine, self.key)]
            elements[self.element] = value
            value = f"[{','.join(elements)}]"
        return f"{self.key}={value}"


def value_at(machine: MachineFile, key: str) -> Any:
    """Return a value of a machine by its dotted key; None if it is missing."""
    node: Any = machine.data
    for part in key.split("."):
        name, _, number = part.rstrip("]").partition("[")
        node = node.get(name) if isinstance(node, dict) else None
        if number and isinstance(node, list):
            node = node[int(number)]
    return node


def assumed_numbers(machine: MachineFile) -> list[AssumedNumber]:
    """Return the assumed numbers of a machine, without zeros and without shares of 1, which are no assumptions."""
    assumptions = []
    for key, origin in machine.origins.items():
        if origin.kind == "assumed" and key != FRAMING:
            value = value_at(machine, key)
            elements = enumerate(value) if isinstance(value, list) else [(-1, value)]
            numbers = [(i, float(v)) for i, v in elements if isinstance(v, int | float) and v > 0]
            assumptions += [AssumedNumber(key, i, v) for i, v in numbers if not (key.endswith("_share") and v == 1)]
    return assumptions


def dependence(check: Check) -> tuple[Sensitivity, ...]:
    """Return how the result of a check depends on assumed numbers, strongest first, without negligible dependences.

    A number changes in all machines that share it: files that extend the same file and have the same value.
    """
    with examined() as used_machines:
        base_numbers = check().numbers
        numbers: dict[tuple[str, AssumedNumber], list[str]] = {}
        for name in sorted(used_machines):
            for number in assumed_numbers(machine(name)):
                numbers.setdefault((machine(name).root, number), []).append(name)
        settings = [number.setting(machine(names[0])) for (_, number), names in numbers.items()]
    sensitivities = []
    for ((root, number), names), setting in zip(numbers.items(), settings, strict=True):
        try:
            with examined(dict.fromkeys(names, setting)):
                changed_numbers = check().numbers
        except UsageError:
            continue  # the machine does not allow this value
        steps = [math.log(m / b) for m, b in zip(changed_numbers, base_numbers, strict=False) if m > 0 and b > 0]
        if largest := max(steps, key=abs, default=0.0):
            key = number.key if number.element < 0 else f"{number.key}[{number.element}]"
            sensitivities.append(Sensitivity(root, key, largest / math.log(number.changed / number.value)))
    return tuple(sorted((s for s in sensitivities if abs(s.elasticity) >= 0.01), key=lambda f: -abs(f.elasticity)))


def restates(row: StatementRow) -> Sensitivity | None:
    """Return the assumed number to which the result of a statement on values is proportional; None if it has none.

    A statement on an order or a sign does not change with the numbers and therefore restates none of them.
    """
    if not isinstance(row.claim.value, int | float | list):
        return None
    low, high = ONE_FOR_ONE
    return next((d for d in row.depends or () if low <= abs(d.elasticity) <= high), None)


def validate(
    only: Sequence[str] = (), progress: Callable[[int, int], None] | None = None, sensitivity: bool = False
) -> list[StatementRow]:
    """Check all statements, or only the statements in `only`.

    Args:
        only: Ids of statements; empty: all.
        progress: Function that is called with the number of checked statements and of all; None: none is.
        sensitivity: Whether to vary every assumed number that a modelled statement depends on.

    Raises:
        UsageError: A statement in `only` is unknown.
    """
    known_ids = {c.id for c in claims()}
    if unknown_ids := [o for o in only if o not in known_ids]:
        raise UsageError(
            f"validate: found unknown statement '{unknown_ids[0]}'", f"allowed: {min(known_ids)} to {max(known_ids)}"
        )
    selected_claims = [c for c in claims() if not only or c.id in only]
    rows = []
    for number, claim in enumerate(selected_claims):
        function = CHECKS.get(claim.id)
        finding = function() if function else StatementResult("not modelled", None, "there is no model of it yet")
        depends = dependence(function) if sensitivity and function and finding.numbers else None
        rows.append(StatementRow(claim, finding, fitted_to().get(claim.id, ()), depends))
        if progress is not None:
            progress(number + 1, len(selected_claims))
    return rows
