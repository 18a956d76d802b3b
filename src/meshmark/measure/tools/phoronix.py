"""The Phoronix Test Suite's results (`composite.xml`): bar graphs, with the single runs if they are stored.

Results of its STREAM test are records of ours. Line graphs (sensors over time) and tests that failed are left out.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import Unit, scaled, unit_of
from meshmark.store.record import Better, Record

_TOOL: Final = "Phoronix Test Suite"
_DIRECTIONS: Final[dict[str, Better]] = {"HIB": "higher", "LIB": "lower"}
_NAMES: Final = {"s": "elapsed", "B/s": "data_rate", "flop/s": "flop_rate", "op/s": "rate", "B": "size"}
_STREAM: Final = {"copy": "copy", "scale": "scale", "add": "add", "triad": "triad"}


def recognises(start: str) -> bool:
    return "<PhoronixTestSuite>" in start and ("<Generated>" in start or "<System>" in start) and "<Result>" in start


def read(text: str, machine: str) -> list[Record]:
    """All results; with the condition `system` if the file holds several."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities can expand without bound
        raise FormatError(f"{_TOOL}: found a document type, none is allowed")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as why:
        raise FormatError(f"{_TOOL}: line {why.position[0]}: found no XML ({quoted(why.msg, 80)})") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{_TOOL}: found characters or nesting that are no XML") from None
    systems = {_text(s, "Identifier"): s for s in root.findall("System")}
    client = _text(root, "Generated/TestClient")
    made = []
    for at, result in enumerate(root.findall("Result"), 1):
        where = f"{_TOOL}: result {at}"
        entries = result.findall("Data/Entry")
        if not (_text(result, "Identifier") or _text(result, "Title")) or not entries:
            raise FormatError(f"{where}: found no Identifier or no Entry, both are required")
        if _text(result, "DisplayFormat") not in {"", "BAR_GRAPH"}:
            continue
        for entry in entries:
            name = _text(entry, "Identifier")
            system = systems.get(name)
            if system is None and systems:
                raise FormatError(f"{where}: found system '{quoted(name, 40)}'; allowed: those of <System>")
            version = (_text(system, "TestClientVersion") if system is not None else "") or client
            start = _text(system, "TimeStamp") if system is not None else ""
            about = About(machine, "phoronix", re.sub(r"^[^\d]*v?", "", version), start=start)
            if _text(entry, "Value"):
                made.append(_record(about, result, entry, name if len(systems) > 1 else None, where))
    if not made:
        raise FormatError(f"{_TOOL}: found no values, at least 1 is required")
    return made


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _record(
    about: About, result: ElementTree.Element, entry: ElementTree.Element, system: str | None, where: str
) -> Record:
    test = _text(result, "Identifier") or _text(result, "Title")
    unit = unit_of(_text(result, "Scale"))
    value = _text(entry, "Value")
    single = [cell for cell in _text(entry, "RawString").split(":") if cell.strip()]
    samples = [scaled(number(cell, f"{where}: {quoted(test, 60)}"), unit.factor, where) for cell in [value, *single]]
    description = _text(result, "Description")
    version = _text(result, "AppVersion") or None
    kernel = _STREAM.get(description.removeprefix("Type:").strip().lower())
    if re.fullmatch(r"pts/stream-[\d.]+", test) and kernel and unit.si == "B/s":
        # STREAM prints the best of its repetitions; the suite repeats the program.
        return ours(
            about,
            "bandwidth",
            "bandwidth_net",
            samples[1:] or samples,
            kernel=kernel,
            statistic="best",
            system=system,
            test=test,
        )
    return theirs(
        about,
        _name(unit),
        unit.si,
        _DIRECTIONS.get(_text(result, "Proportion"), unit.better),
        samples[1:] or samples,
        test=test,
        description=description or None,
        app_version=version,
        system=system,
        statistic=None if single else "mean",
    )


def _name(unit: Unit) -> str:
    return _NAMES.get(unit.si, "score")


READERS: Final = [Reader("phoronix", "Phoronix Test Suite, composite.xml", recognises, whole(read))]
