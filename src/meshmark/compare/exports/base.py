"""Provides the results and the topology to every export, and states what an export leaves out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from xml.dom.minidom import getDOMImplementation
from xml.etree import ElementTree

from meshmark.compare.sides import ResultSide
from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.machine.capture import OpenedMachine, open_machine
from meshmark.machine.sources import from_hwloc_xml, lstopo
from meshmark.machine.topology import Topology
from meshmark.store.record import Record, Scalar
from meshmark.values.units import plain

Row = tuple[str, str, Record]  # run, step, record
Needs = Literal["", "topology", "hwloc", "history"]
NEEDS: Final[Mapping[Needs, str]] = {
    "": "results",
    "topology": "results, topology",
    "hwloc": "results, topology from hwloc",
    "history": "runs in the store",
}


@dataclass(slots=True, kw_only=True)
class ExportMaterial:
    """The results of a machine, and its topology.

    Attributes:
        opened: The machine, if its topology is known.
        rows: All stored results of the machine; only for exports of its history.
        flagged: Whether flagged results are exported.
        notes: What the export assumes, one sentence each; `left_out` adds what it omits.
    """

    side: ResultSide
    opened: OpenedMachine | None = None
    rows: Sequence[Row] = ()
    flagged: bool = False
    notes: list[str] = field(default_factory=list)
    _omitted: dict[int, str] = field(default_factory=dict)  # reason by `id` of the record, which counts once

    @property
    def topology(self) -> Topology:
        """Return the machine's topology.

        Raises:
            UsageError: It is unknown.
        """
        if self.opened is None:
            raise UsageError(
                f"export: found no topology of {quoted(self.side.machine)}, which is not this host",
                "--topology FILE, which `meshmark machine capture FILE` writes on that machine, or its hwloc XML",
            )
        return self.opened.topology

    def hwloc_xml(self) -> bytes:
        """Return the topology as hwloc describes it, after checking it.

        Raises:
            UsageError: The topology is unknown, or the capture has no hwloc XML.
            MachineError: hwloc's description cannot be read.
            AbsentError: hwloc is not installed.
        """
        topology = self.topology
        assert self.opened is not None
        data = self.opened.hwloc_xml
        if data is None and self.opened.label != "host":
            raise UsageError(
                f"--topology: {quoted(self.opened.what)} has no hwloc XML, which this format extends",
                "lstopo FILE.xml on that machine, and --topology FILE.xml",
            )
        data = data if data is not None else lstopo("--no-io")
        hwloc_topology = from_hwloc_xml(data)  # refuses entities
        if not re.search(rb"<topology\s[^>]*version=\"2\.", data):
            raise UsageError(
                f"--topology: {quoted(self.opened.what)} is not XML of format 2, which this format extends",
                "lstopo of hwloc 2 converts it: lstopo -i FILE.xml NEW.xml",
            )
        if {n.os_index for n in hwloc_topology.nodes} != {n.os_index for n in topology.nodes}:
            self.notes.append("hwloc lists other NUMA nodes than the Linux kernel; the nodes of hwloc are used")
        return data

    def take(self, instrument: str, *metrics: str) -> list[Record]:
        """Return the results of an instrument that may be exported, without modes; count the others as left out."""
        records = [r for r in self.side.points if r.instrument == instrument and (not metrics or r.metric in metrics)]
        return self.usable(records)

    def usable(self, records: Sequence[Record]) -> list[Record]:
        """Return the records without flags, or all records if `flagged`; count the others as left out."""
        exportable = []
        for r in records:
            if r.flags and not self.flagged:
                self.omit(r, f"flagged ({', '.join(sorted(r.flags))}); --flagged exports them")
            else:
                exportable.append(r)
        return exportable

    def omit(self, record: Record, reason: str) -> None:
        """Count a result as left out."""
        self._omitted.setdefault(id(record), reason)

    def left_out(self) -> list[str]:
        """Return what is left out, one line for each reason."""
        counts = Counter(self._omitted.values())
        return [f"left out {n} result{'s' * (n != 1)}: {reason}" for reason, n in counts.items()]

    def about(self, name: str) -> list[str]:
        """Return where the numbers come from, as lines for the head of a file."""
        sources = sorted({r.source for r in self.side.points})
        return [
            f"Written by meshmark export {name}",
            f"Machine {self.side.machine}, source {', '.join(sources)}, {self.side.what}, "
            f"newest result {self.side.start or 'of unknown time'}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of an export.

    Attributes:
        write: Returns the text of the export; None if another command, which `instead` names, writes the format.
        suffix: Usual suffix of the files.
    """

    name: str
    summary: str
    write: Callable[[ExportMaterial], str] | None
    needs: Needs = ""
    instead: str = ""
    suffix: str = ".txt"


def machine_of(side: ResultSide, topology: str, host: str) -> OpenedMachine | None:
    """Return the machine of a side: the file `topology` if one is given, or this host; None if its topology is unknown.

    Args:
        side: The results that are exported.
        topology: Capture, hwloc XML, synthetic description of hwloc, `host`, or "".
        host: Id of this machine.

    Raises:
        UsageError: The file is a capture of another machine.
        MachineError: The file cannot be read.
        AbsentError: A synthetic description needs hwloc, which is not installed.
    """
    if not topology:
        return open_machine() if side.machine == host else None
    opened = open_machine(topology)
    machine_facts = opened.facts.get("machine")
    machine_id = machine_facts.get("id") if isinstance(machine_facts, Mapping) else None
    if isinstance(machine_id, str) and machine_id != side.machine:
        raise UsageError(
            f"--topology: found the topology of {quoted(machine_id)}; the results are of {quoted(side.machine)}",
            f"meshmark machine show {quoted(topology)}",
        )
    return opened


def nothing(what: str, *commands: str) -> AbsentError:
    """Return the error that reports that there is nothing to export; its hint names the commands that measure it."""
    return AbsentError(f"export: found no measured {what}", "; ".join(commands))


def shown(record: Record) -> str:
    """Return a value with its interval and flags: `94.3 ns (95 %: 93.9 ns – 95.1 ns)`."""
    bounds, count = record.bounds, len(record.samples)
    low_high = f" (no interval: {count} sample{'s' * (count != 1)})"
    if bounds:
        low_high = f" (95 %: {plain(bounds[0], record.unit)} – {plain(bounds[1], record.unit)})"
    flags = f" [{', '.join(sorted(record.flags))}]" if record.flags else ""
    return f"{plain(record.value, record.unit)}{low_high}{flags}"


def words(conditions: Mapping[str, Scalar]) -> str:
    """Return conditions as words: `kernel read, footprint 1 GiB`."""
    texts = []
    for name, value in conditions.items():
        if value is None or value == "":
            continue
        is_size = name.endswith("_bytes") and isinstance(value, int | float) and not isinstance(value, bool)
        shown_value = plain(float(value), "B") if is_size else str(value)
        texts.append(f"{name.removesuffix('_bytes').replace('_', ' ')} {shown_value}")
    return ", ".join(texts)


def commented(lines: Sequence[str], mark: str = "# ") -> list[str]:
    """Return lines as comments."""
    return [f"{mark}{' '.join(line.split())}" for line in lines]


def xml_text(root: ElementTree.Element, about: Sequence[str] = (), doctype: tuple[str, str] | None = None) -> str:
    """Return the text of a document, indented, with comments at its head.

    Args:
        root: Root of the document; it gets the comments and the indentation.
        about: Lines of comments.
        doctype: Name of the root and address of its DTD.
    """
    for line in reversed(about):
        root.insert(0, ElementTree.Comment(f" {line.replace('--', '- -')} "))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    head = ["<?xml version='1.0' encoding='UTF-8'?>"]
    if doctype is not None:
        implementation = getDOMImplementation()
        assert implementation is not None
        head.append(implementation.createDocumentType(doctype[0], None, doctype[1]).toxml())
    return "\n".join([*head, body, ""])
