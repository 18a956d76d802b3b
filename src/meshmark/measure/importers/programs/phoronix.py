"""Reader of the Phoronix Test Suite's results (`composite.xml`, `result-file-to-json`).

Bar graphs are read, with the single runs if the file contains them.

Results of its STREAM test become records of `bandwidth`. Line graphs (sensors over time) and tests that failed are left
out. The suite's CSV does not state units, so it is not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from xml.etree import ElementTree

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, number
from meshmark.measure.importers.documents import json_objects
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import measured, optional, scaled, unit_of
from meshmark.store.record import Better, Scalar

_DIRECTIONS: Final[dict[str, Better]] = {"HIB": "higher", "LIB": "lower"}
_NAMES: Final = {"s": "elapsed", "B/s": "data_rate", "flop/s": "flop_rate", "op/s": "rate", "B": "size"}
_STREAM: Final = {"copy", "scale", "add", "triad"}
# Facts of a result: their keys in JSON, and their elements in XML.
_FACTS: Final = {
    "identifier": "Identifier",
    "title": "Title",
    "units": "Scale",
    "proportion": "Proportion",
    "description": "Description",
    "arguments": "Arguments",
    "app_version": "AppVersion",
    "display_format": "DisplayFormat",
}
_BAR_GRAPHS: Final = {"", "BAR_GRAPH"}


@dataclass(slots=True)
class _PhoronixResult:
    """The facts of one test, and its results: system, value and single runs, as printed in the file."""

    where: str
    facts: dict[str, str]
    entries: list[tuple[str, str, list[str]]]

    @property
    def key(self) -> tuple[str, ...]:
        """Return the facts that the conditions always state."""
        return tuple(self.facts[name] for name in ("identifier", "description", "app_version", "units"))


@dataclass(slots=True)
class _PhoronixFile:
    """The content of a file: version of the client and time by system, the client that wrote the file, and results."""

    systems: dict[str, tuple[str, str]] = field(default_factory=dict)
    client: str = ""
    results: list[_PhoronixResult] = field(default_factory=list)


def recognises(start: str) -> bool:
    """Return whether the start of a file is XML or JSON with results of the test suite."""
    if "<PhoronixTestSuite>" in start:
        return ("<Generated>" in start or "<System>" in start) and "<Result>" in start
    json_keys = ('"title"', '"results"', '"value"')
    return all(key in start for key in json_keys) and (
        ('"units"' in start and '"all_results"' in start) or ('"scale"' in start and '"proportion"' in start)
    )


def read(output: ToolOutput) -> None:
    """Read all results, with the condition `system` if the file contains several systems."""
    file = _of_xml(output) if "<PhoronixTestSuite>" in output.text else _of_json(output)
    key_counts = Counter(result.key for result in file.results)
    has_one_system = len({*file.systems, *(system for result in file.results for system, *_ in result.entries)}) < 2
    for result in file.results:
        with output.item(result.where):
            test, display = result.facts["identifier"], result.facts["display_format"]
            if not test or not result.entries:
                raise FormatError("found no Identifier or no Entry, both are required")
            if display not in _BAR_GRAPHS:
                raise FormatError(f"{quoted(test, 60)}: a {quoted(display, 20)} is not a result of a test")
            for system, value, runs in result.entries:
                with output.item(result.where):
                    if file.systems and system not in file.systems:
                        raise FormatError(f"found system '{quoted(system, 40)}'; allowed: the identifiers in <System>")
                    version, start = file.systems.get(system, ("", ""))
                    output.set_source(re.sub(r"^[^\d]*v?", "", version or file.client), start=start)
                    arguments = (result.facts["arguments"] or None) if key_counts[result.key] > 1 else None
                    _record(output, result, value, runs, system=None if has_one_system else system, arguments=arguments)


def _of_xml(output: ToolOutput) -> _PhoronixFile:
    text = output.text
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities can expand without bound
        raise FormatError("Phoronix Test Suite: found a document type, none is allowed")
    begin, end = text.find("<PhoronixTestSuite>"), text.rfind("</PhoronixTestSuite>")
    if end < 0 and (last := text.rfind("</Result>")) >= 0:  # cut off: up to the last whole result
        output.leave_out(output.line_at(last), "found no </PhoronixTestSuite>; what follows the last result is ignored")
        text, end = text[: last + len("</Result>")] + "</PhoronixTestSuite>", last + len("</Result>")
    try:
        root = ElementTree.fromstring(text[begin : end + len("</PhoronixTestSuite>")])
    except ElementTree.ParseError as error:
        line = output.line_at(begin) + error.position[0] - 1
        raise FormatError(f"Phoronix Test Suite: line {line}: found no XML ({quoted(error.msg, 80)})") from None
    except (ValueError, RecursionError):
        raise FormatError("Phoronix Test Suite: found characters or nesting that are not valid XML") from None
    file = _PhoronixFile(client=_text(root, "Generated/TestClient"))
    for system in root.findall("System"):
        file.systems[_text(system, "Identifier")] = _text(system, "TestClientVersion"), _text(system, "TimeStamp")
    for index, element in enumerate(root.findall("Result"), 1):
        facts = {key: _text(element, name) for key, name in _FACTS.items()}
        facts["identifier"] = facts["identifier"] or facts["title"]
        entries = [
            (_text(entry, "Identifier"), _text(entry, "Value"), _text(entry, "RawString").split(":"))
            for entry in element.findall("Data/Entry")
        ]
        file.results.append(_PhoronixResult(f"result {index}", facts, entries))
    return file


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _of_json(output: ToolOutput) -> _PhoronixFile:
    file = _PhoronixFile()
    for place, document in json_objects(output, "results", dict):
        for name, system in _objects(document.get("systems")):
            file.systems[name] = optional(system, "client_version"), optional(system, "timestamp")
        for name, values in _objects(document["results"]):
            facts = {key: optional(values, key) for key in _FACTS}
            facts["identifier"] = facts["identifier"] or name
            facts["units"] = facts["units"] or optional(values, "scale")
            facts["description"] = facts["description"] or facts["arguments"]
            result = _PhoronixResult(f"{place}results: {quoted(name, 60)}", facts, [])
            for host, entry in _objects(values.get("results")):
                runs = entry.get("all_results", entry.get("raw_values"))
                texts = [str(run) for run in runs] if isinstance(runs, list) else str(runs or "").split(":")
                value = entry.get("value")
                result.entries.append((host, "" if value is None else str(value).strip(), texts))
            file.results.append(result)
    return file


def _objects(values: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the items of an object that are objects."""
    if isinstance(values, dict):
        yield from ((str(name), value) for name, value in values.items() if isinstance(value, dict))


def _record(output: ToolOutput, result: _PhoronixResult, value: str, runs: list[str], **conditions: Scalar) -> None:
    test, description = result.facts["identifier"], result.facts["description"]
    where = quoted(test, 60)
    if not value:
        raise FormatError(f"{where}: found no value; the test failed")
    unit = unit_of(result.facts["units"])
    single_runs = [run for run in runs if run.strip()]
    samples = [
        measured(scaled(number(text, where), unit.factor, where), unit.si, where) for text in (value, *single_runs)
    ]
    samples = samples[1:] or samples
    conditions["test"] = test
    kernel = description.removeprefix("Type:").strip().lower()
    if re.fullmatch(r"pts/stream-[\d.]+", test) and kernel in _STREAM and unit.si == "B/s":
        # STREAM prints the best rate of its repetitions; the suite repeats the program.
        output.add_meshmark_metric("bandwidth.bandwidth_net", samples, **conditions, kernel=kernel, statistic="best")
        return
    conditions |= {
        "description": description or None,
        "app_version": result.facts["app_version"] or None,
        "statistic": None if single_runs else "mean",
    }
    better = _DIRECTIONS.get(result.facts["proportion"], unit.better)
    output.add_tool_metric(_NAMES.get(unit.si, "score"), unit.si, samples, better, **conditions)


READERS: Final = [FormatReader("phoronix", "Phoronix Test Suite, composite.xml or JSON", recognises, read, version=2)]
