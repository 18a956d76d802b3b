"""The Phoronix Test Suite's results (`composite.xml`, `result-file-to-json`): bar graphs, with the single runs if they
are stored.

Results of its STREAM test are records of ours. Line graphs (sensors over time) and tests that failed are left out. The
suite's CSV does not state units, so it is not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from xml.etree import ElementTree

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.documents import json_documents
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import measured, optional, scaled, unit_of
from meshmark.store.record import Better, Scalar

_TOOL: Final = "Phoronix Test Suite"
_DIRECTIONS: Final[dict[str, Better]] = {"HIB": "higher", "LIB": "lower"}
_NAMES: Final = {"s": "elapsed", "B/s": "data_rate", "flop/s": "flop_rate", "op/s": "rate", "B": "size"}
_STREAM: Final = {"copy": "copy", "scale": "scale", "add": "add", "triad": "triad"}
_BAR_GRAPHS: Final = {"", "BAR_GRAPH"}


@dataclass(slots=True)
class _Result:
    """One test with its results by system: the value and the single runs as they stand."""

    where: str
    test: str
    unit: str
    proportion: str
    description: str
    arguments: str
    app_version: str
    display: str
    entries: list[tuple[str, str, list[str]]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, ...]:
        return self.test, self.description, self.app_version, self.unit


def recognises(start: str) -> bool:
    if "<PhoronixTestSuite>" in start:
        return ("<Generated>" in start or "<System>" in start) and "<Result>" in start
    json_keys = ('"title"', '"results"', '"value"')
    return all(key in start for key in json_keys) and (
        ('"units"' in start and '"all_results"' in start) or ('"scale"' in start and '"proportion"' in start)
    )


def read(output: ToolOutput) -> None:
    """All results; with the condition `system` if the file holds several."""
    if "<PhoronixTestSuite>" in output.text:
        systems, client, results = _of_xml(output)
    else:
        systems, client, results = _of_json(output)
    repeated = Counter(result.key for result in results)
    several = len(systems) > 1 or len({system for result in results for system, *_ in result.entries}) > 1
    for result in results:
        with output.item(result.where):
            if not result.test or not result.entries:
                raise FormatError("found no Identifier or no Entry, both are required")
            if result.display not in _BAR_GRAPHS:
                raise FormatError(
                    f"{quoted(result.test, 60)}: a {quoted(result.display, 20)} is not a result of a test"
                )
            for system, value, runs in result.entries:
                with output.item(result.where):
                    if systems and system not in systems:
                        raise FormatError(f"found system '{quoted(system, 40)}'; allowed: those of <System>")
                    version, start = systems.get(system, ("", ""))
                    about = About(output.machine, "phoronix", re.sub(r"^[^\d]*v?", "", version or client), start=start)
                    conditions: dict[str, Scalar] = {"system": system if several else None}
                    if repeated[result.key] > 1:
                        conditions["arguments"] = result.arguments or None
                    _record(output, about, result, value, runs, conditions)


def _of_xml(output: ToolOutput) -> tuple[dict[str, tuple[str, str]], str, list[_Result]]:
    text = output.text
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities can expand without bound
        raise FormatError(f"{_TOOL}: found a document type, none is allowed")
    begin, end = text.find("<PhoronixTestSuite>"), text.rfind("</PhoronixTestSuite>")
    if end < 0 and (last := text.rfind("</Result>")) >= 0:  # cut off: up to the last whole result
        output.leave_out(
            output.line_at(last), "found no </PhoronixTestSuite>; what follows the last result is not taken"
        )
        text, end = text[: last + len("</Result>")] + "</PhoronixTestSuite>", last + len("</Result>")
    try:
        root = ElementTree.fromstring(text[begin : end + len("</PhoronixTestSuite>")])
    except ElementTree.ParseError as error:
        line = output.line_at(begin) + error.position[0] - 1
        raise FormatError(f"{_TOOL}: line {line}: found no XML ({quoted(error.msg, 80)})") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{_TOOL}: found characters or nesting that are no XML") from None
    systems = {
        _text(system, "Identifier"): (_text(system, "TestClientVersion"), _text(system, "TimeStamp"))
        for system in root.findall("System")
    }
    results = []
    for at, element in enumerate(root.findall("Result"), 1):
        result = _Result(
            f"result {at}",
            _text(element, "Identifier") or _text(element, "Title"),
            _text(element, "Scale"),
            _text(element, "Proportion"),
            _text(element, "Description"),
            _text(element, "Arguments"),
            _text(element, "AppVersion"),
            _text(element, "DisplayFormat"),
        )
        for entry in element.findall("Data/Entry"):
            runs = _text(entry, "RawString").split(":")
            result.entries.append((_text(entry, "Identifier"), _text(entry, "Value"), runs))
        results.append(result)
    return systems, _text(root, "Generated/TestClient"), results


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _of_json(output: ToolOutput) -> tuple[dict[str, tuple[str, str]], str, list[_Result]]:
    documents = json_documents(output, lambda value: isinstance(value, dict) and isinstance(value.get("results"), dict))
    systems: dict[str, tuple[str, str]] = {}
    results: list[_Result] = []
    for line, document in documents:
        for name, system in _objects(document.get("systems")):
            systems[name] = optional(system, "client_version"), optional(system, "timestamp")
        for name, values in _objects(document["results"]):
            result = _Result(
                f"line {line}: results: {quoted(name, 60)}",
                optional(values, "identifier") or name,
                optional(values, "units") or optional(values, "scale"),
                optional(values, "proportion"),
                optional(values, "description") or optional(values, "arguments"),
                optional(values, "arguments"),
                optional(values, "app_version"),
                optional(values, "display_format"),
            )
            for host, entry in _objects(values.get("results")):
                runs = entry.get("all_results", entry.get("raw_values"))
                texts = [str(run) for run in runs] if isinstance(runs, list) else str(runs or "").split(":")
                value = entry.get("value")
                result.entries.append((host, "" if value is None else str(value).strip(), texts))
            results.append(result)
    return systems, "", results


def _objects(values: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The items of an object that are objects."""
    if isinstance(values, dict):
        yield from ((str(name), value) for name, value in values.items() if isinstance(value, dict))


def _record(
    output: ToolOutput, about: About, result: _Result, value: str, runs: list[str], conditions: dict[str, Scalar]
) -> None:
    where = quoted(result.test, 60)
    if not value:
        raise FormatError(f"{where}: found no value; the test failed")
    unit = unit_of(result.unit)
    single = [run for run in runs if run.strip()]
    samples = [measured(scaled(number(text, where), unit.factor, where), unit.si, where) for text in (value, *single)]
    conditions["test"] = result.test
    kernel = _STREAM.get(result.description.removeprefix("Type:").strip().lower())
    if re.fullmatch(r"pts/stream-[\d.]+", result.test) and kernel and unit.si == "B/s":
        # STREAM prints the best of its repetitions; the suite repeats the program.
        conditions |= {"kernel": kernel, "statistic": "best"}
        output.add(ours(about, "bandwidth", "bandwidth_net", samples[1:] or samples, **conditions))
        return
    conditions |= {
        "description": result.description or None,
        "app_version": result.app_version or None,
        "statistic": None if single else "mean",
    }
    better = _DIRECTIONS.get(result.proportion, unit.better)
    name = _NAMES.get(unit.si, "score")
    output.add(theirs(about, name, unit.si, better, samples[1:] or samples, **conditions))


READERS: Final = [Reader("phoronix", "Phoronix Test Suite, composite.xml or JSON", recognises, read, version=2)]
