"""Lists all export formats, and writes a format by its name."""

from __future__ import annotations

from typing import Final

from meshmark.compare.exports import guest, hwloc_xml, memory, series, simulators
from meshmark.compare.exports.base import ExportMaterial, Format
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
    """Return the format of a name.

    Raises:
        UsageError: There is no such format, or another command writes it.
    """
    if name not in FORMATS:
        raise UsageError(f"format: found '{name}'; allowed: {', '.join(FORMATS)}")
    format_ = FORMATS[name]
    if format_.write is None:
        raise UsageError(f"export: {name} is written from recordings, not from results", format_.instead)
    return format_


def write(name: str, material: ExportMaterial) -> str:
    """Return the results and the topology as text in a format.

    Raises:
        UsageError: The topology or the history that it needs is unknown.
        AbsentError: What the format exports was not measured; the hint names the command that measures it.
    """
    format_ = format_of(name)
    assert format_.write is not None
    if format_.needs == "history" and not material.rows:
        raise UsageError(
            f"export: found no runs of {material.side.machine} in the store, whose history {name} is",
            "meshmark store list",
        )
    return format_.write(material)
