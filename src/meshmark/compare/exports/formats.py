"""All formats, and how one is written."""

from __future__ import annotations

from typing import Final

from meshmark.compare.exports import guest, hwloc_xml, memory, series, simulators
from meshmark.compare.exports.base import Format, Material
from meshmark.errors import UsageError

_ELSEWHERE: Final = [
    Format(
        name="perfetto",
        summary="trace of a recording: meshmark replay RECORDING --trace FILE",
        write=None,
        instead="meshmark replay RECORDING --trace FILE.json",
    )
]
_ALL: Final[list[Format]] = [
    *hwloc_xml.FORMATS,
    *memory.FORMATS,
    *guest.FORMATS,
    *simulators.FORMATS,
    *series.FORMATS,
    *_ELSEWHERE,
]
FORMATS: Final[dict[str, Format]] = {f.name: f for f in _ALL}


def format_of(name: str) -> Format:
    """The format of a name.

    Raises:
        UsageError: There is none, or another command writes it.
    """
    if name not in FORMATS:
        raise UsageError(f"format: found '{name}'; allowed: {', '.join(FORMATS)}")
    found = FORMATS[name]
    if found.write is None:
        raise UsageError(f"export: {name} is written from recordings, not from results", found.instead)
    return found


def write(name: str, material: Material) -> str:
    """The text of a format.

    Raises:
        UsageError: The topology or the history that it needs is unknown.
        AbsentError: What it exports was not measured; the hint measures it.
    """
    chosen = format_of(name)
    assert chosen.write is not None
    if chosen.needs == "history" and not material.rows:
        raise UsageError(
            f"export: found no runs of {material.side.machine} in the store, whose history {name} is",
            "meshmark store list",
        )
    return chosen.write(material)
