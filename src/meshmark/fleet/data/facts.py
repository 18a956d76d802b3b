"""The configuration of a node, from the files that it recorded: facts that define its class, and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.machine.absence import is_absent
from meshmark.machine.boot import comparable_facts
from meshmark.machine.facts import recorded_facts

# Nodes with the same values of these facts are a class; the other facts may differ within it.
HARDWARE: Final = ("product", "cpu", "memory", "dimms", "firmware")
_GIB: Final = 1 << 30
_MAX_LENGTH: Final = 1000  # characters of a fact, since nodes may send any text


def node_facts(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the facts on which comparability depends, as texts.

    Unknown facts are left out, and so is the boot, which differs between any two nodes.

    Args:
        files: Content of files in /proc and /sys, by path below /.
    """
    facts: Mapping[str, Any] = recorded_facts(files)
    comparable = comparable_facts(facts)
    memory, pages = facts["memory"], facts["pages"]
    hardware = {
        "product": " ".join(
            str(facts["firmware"][k]) for k in ("system_vendor", "product") if _known(facts["firmware"], k)
        ),
        "memory": f"{round(memory['total_bytes'] / _GIB)} GiB" if _known(memory, "total_bytes") else "",
        "dimms": _dimms(memory["dimms"]) if _known(memory, "dimms") else "",
        "huge_pages": _huge(pages["huge"]) if _known(pages, "huge") else "",
    }
    return {key: quoted(text, _MAX_LENGTH) for key, text in {**comparable, **hardware}.items() if text}


def _known(facts: Any, key: str) -> bool:
    return isinstance(facts, dict) and key in facts and not is_absent(facts[key])


def _huge(found: Any) -> str:
    """Return the reserved huge pages, such as `64 of 2048 KiB`; "" if no pages are reserved."""
    return ", ".join(f"{pool['total']} of {pool['size_bytes'] >> 10} KiB" for pool in found if _count(pool, "total"))


def _count(pool: Any, key: str) -> int:
    """Return a number of pages; 0 if it is unknown."""
    value = pool.get(key)
    return value if isinstance(value, int) else 0


def _dimms(found: Any) -> str:
    """Return the memory modules, such as `16 × 32 GiB DDR5 4800 MT/s`."""
    kinds: dict[str, int] = {}
    for dimm in found:
        size = dimm.get("size_bytes")
        if not isinstance(size, int) or size <= 0:
            continue
        rate = dimm.get("rate_t_per_s")
        name = f"{size / _GIB:g} GiB {dimm.get('kind') if isinstance(dimm.get('kind'), str) else ''}".strip()
        name += f" {rate / 1e6:g} MT/s" if isinstance(rate, int | float) else ""
        kinds[name] = kinds.get(name, 0) + 1
    return ", ".join(f"{count} × {name}" for name, count in sorted(kinds.items()))
