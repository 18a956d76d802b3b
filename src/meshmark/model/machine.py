"""Reads machine files: TOML descriptions of machines that state the origin of every number.

A number is written `{ value = 1.15, published = "gs1280_2003 s2" }`. Other origins are `derived` (how), `fitted` (to
which statements) and `assumed` (why). An origin in a table applies to the plain numbers of the table.
`{ unknown = "why" }` marks a number as unknown; it stays absent. docs/reference/machine-files.md lists every key.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.model.keys import COUNTS, KEYS, KINDS, Kind, MachineTable
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import checked, quoted_value

FOLDER: Final = Path(__file__).parent / "machines"
FORMAT: Final = 1
_MAX_BYTES: Final = 1 << 20
_MAX_BASES: Final = 16


class MachineFileError(UsageError):
    """A machine file is invalid. The message names the file, the key and the reason."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a number of a machine file."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A modelled machine. `data` holds plain values; `origins` holds the origin of each number by dotted key."""

    name: str
    path: Path
    title: str
    publication: str
    note: str
    data: Mapping[str, Any]
    origins: Mapping[str, Origin]
    unknown: Mapping[str, str]  # reason by dotted key
    settings: tuple[str, ...] = field(default=())  # assignments of --set
    root: str = field(default="")  # name of the last file in the chain of `extends`; its own name if it extends no file

    def number(self, dotted: str, default: float | None = None) -> float:
        """Return a number by its dotted key.

        Raises:
            MachineFileError: The number is missing and `default` is None.
        """
        value: Any = self.data
        for part in dotted.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if default is None:
            reason = self.unknown.get(dotted)
            raise MachineFileError(
                f"{self.path.name}: {dotted}: found {'unknown: ' + reason if reason else value!r}, a number is needed"
            )
        return default

    @property
    def label(self) -> str:
        """Return the name of the machine in records: its name and its settings."""
        return self.name + "".join(f" {s}" for s in self.settings)

    def uncertain_keys(self) -> list[str]:
        """Return the keys of assumed and unknown numbers, which make predictions uncertain."""
        return sorted([k for k, o in self.origins.items() if o.kind == "assumed"] + list(self.unknown))

    def resolved(self) -> dict[str, Any]:
        """Return the machine in the format of the simulator: only its tables, with cycles converted to time.

        Raises:
            MachineFileError: A required number is unknown.
        """
        data = deepcopy(dict(self.data))
        clock = self.number("cpu.clock_ghz", math.nan)
        cpu = data.get("cpu", {})
        for stem in ("request", "fill", "issue"):
            cycles = cpu.pop(f"{stem}_cycles", None)
            if cycles is not None:
                if math.isnan(clock):
                    raise MachineFileError(
                        f"{self.path.name}: cpu.{stem}_cycles: found without cpu.clock_ghz, which it needs"
                    )
                cpu[f"{stem}_ns"] = cpu.get(f"{stem}_ns", 0) + cycles / clock
        # The simulator applies this limit to all misses. The number of chains already limits dependent loads.
        if "outstanding" in cpu:
            cpu["outstanding"] = max(cpu["outstanding"], cpu.get("stream_outstanding", 0))
        memory = data.get("memory", {})
        if "gap_cycles" in memory:
            memory["gap_ns"] = memory.get("gap_ns", 0) + memory.pop("gap_cycles") / self.number("cpu.clock_ghz")
        ratchet, width = memory.pop("ratchet_mhz", None), memory.pop("channel_bytes", 8)
        if ratchet is not None:
            rate = data_rate_mhz(1000 * clock, ratchet)
            memory["channel_gb_per_s"] = width * rate / 1000
        for stem in ("access", "gap"):
            clocks = memory.pop(f"{stem}_clocks", None)
            if clocks is not None:
                if ratchet is None:
                    raise MachineFileError(
                        f"{self.path.name}: memory.{stem}_clocks: found without memory.ratchet_mhz, which it needs"
                    )
                memory[f"{stem}_ns"] = memory.get(f"{stem}_ns", 0) + clocks * 2000 / rate  # two transfers per clock
        for key in (
            "clock_ghz",
            "stream_outstanding",
            "line_work_ns",
            "line_work_cycles",
            "streaming_store_ns",
            "streaming_store_cycles",
            "threads",
            "flops_per_cycle",
        ):
            cpu.pop(key, None)
        for table, key in (
            ("io", "device_gb_per_s"),
            ("io", "outstanding"),
        ):
            data.get(table, {}).pop(key, None)
        native = {"topology", "links", "router", "packets", "node", "cpu", "memory", "coherence", "placement", "io"}
        return {k: v for k, v in data.items() if k in native}

    def with_settings(self, settings: list[str]) -> MachineFile:
        """Return a copy with `table.key=value` applied. `links.bandwidth` applies to every kind of link.

        Raises:
            UsageError: A setting is not an assignment, or its key is unknown.
            MachineFileError: The value is invalid for the key.
        """
        data, origins, unknown = deepcopy(dict(self.data)), dict(self.origins), dict(self.unknown)
        for setting in settings:
            key, equals, text = setting.partition("=")
            key = key.strip()
            if not equals or not key:
                raise UsageError(f"--set: found '{setting}', table.key=value is needed")
            value = _value(text.strip())
            for dotted in _targets(key, data):
                table: Any = data
                *path, leaf = dotted.split(".")
                for part in path:
                    name, _, number = part.rstrip("]").partition("[")
                    table = table[name][int(number)] if number else table.setdefault(name, {})
                table[leaf] = value
                origins[dotted] = Origin("assumed", "set on the command line")
                unknown.pop(dotted, None)
        checked(MachineTable, data, self.path.name, MachineFileError)
        return MachineFile(
            self.name,
            self.path,
            self.title,
            self.publication,
            self.note,
            data,
            origins,
            unknown,
            (*self.settings, *settings),
            self.root,
        )


def data_rate_mhz(core_mhz: float, nominal_mhz: float) -> float:
    """Return the data rate in MHz of DDR memory that runs at an integer fraction of the core clock.

    The rate is 2 f / ceil(f / nominal), where f is `core_mhz`.

    Source: this rule reproduces the five rates in the publication about the e325.
    """
    return 2 * core_mhz / max(1, math.ceil(core_mhz / nominal_mhz - 1e-4))


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        return text


def _targets(key: str, data: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys that a setting applies to."""
    table, _, leaf = key.rpartition(".")
    if table == "links" and leaf in {"bandwidth", "bandwidth_gb_per_s", "latency", "latency_ns"}:
        full_name = {"bandwidth": "bandwidth_gb_per_s", "latency": "latency_ns"}.get(leaf, leaf)
        kinds = list(data.get("links", {}))
        if not kinds:
            raise UsageError(f"--set: found '{key}' for a machine without links")
        return [f"links.{k}.{full_name}" for k in kinds]
    if key == "memory.striping":  # alias
        return ["placement.striping"]
    table_keys = _known_keys(table)
    if (cache := re.fullmatch(r"cache\[([0-9]{1,6})\]", table)) and int(cache[1]) < len(data.get("cache", [])):
        table_keys = KEYS["cache[]"]
    if table_keys is None or not table or leaf not in table_keys:
        all_names = [f"{t}.{k}" for t, keys in KEYS.items() if t and "*" not in t and "[" not in t for k in keys]
        similar = difflib.get_close_matches(key, all_names, 3, 0.4)
        raise UsageError(
            f"--set: found unknown key '{quoted(key)}'" + (f", similar keys: {', '.join(similar)}" if similar else ""),
            "docs/reference/machine-files.md lists the keys",
        )
    return [key]


def _known_keys(table: str) -> Mapping[str, str] | None:
    if table in KEYS:
        return KEYS[table]
    if table.startswith("links.") and table.count(".") == 1:
        return KEYS["links.*"]
    return None


class _MachineFileReader:
    """Separates values from their origins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.origins: dict[str, Origin] = {}
        self.unknown: dict[str, str] = {}
        self.bare: dict[str, Any] = {}  # numbers that lack a required origin

    def error(self, key: str, reason: str) -> MachineFileError:
        return MachineFileError(f"{self.path.name}: {key}: {reason}")

    def machine(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plain values of a machine file.

        Raises:
            MachineFileError: A key or value is invalid; the message names the key.
        """
        plain = self.table(raw, "")
        checked(MachineTable, plain, self.path.name, MachineFileError)
        for dotted, value in self.bare.items():
            raise self.error(
                dotted, f"found {quoted_value(value)} without its origin, one of {', '.join(sorted(KINDS))} is needed"
            )
        return plain

    def table(self, raw: Mapping[str, Any], name: str) -> dict[str, Any]:
        table_origin = self.origin_of(raw, name)
        plain: dict[str, Any] = {}
        for key, value in raw.items():
            dotted = f"{name}.{key}" if name else key
            if key in KINDS:
                continue
            if dotted == "cache":
                entries = value if isinstance(value, list) else [value]
                plain[key] = [self.table(e, f"cache[{i}]") if isinstance(e, dict) else e for i, e in enumerate(entries)]
            elif isinstance(value, dict) and (_known_keys(dotted) or not {"value", "unknown"} & value.keys()):
                plain[key] = (
                    self.table(value, dotted) if dotted.count(".") < 2 else value
                )  # tables nest at most two deep
            elif (plain_value := self.take(value, dotted, table_origin)) is not None:
                plain[key] = plain_value
        return plain

    def origin_of(self, raw: Mapping[str, Any], dotted: str) -> Origin | None:
        kinds = [k for k in raw if k in KINDS]
        if len(kinds) > 1:
            raise self.error(dotted, f"found {' and '.join(kinds)}, only one origin is allowed")
        if not kinds:
            return None
        text = raw[kinds[0]]
        if not isinstance(text, str) or not text:
            raise self.error(
                f"{dotted}.{kinds[0]}", f"found {quoted_value(text)}, a text is needed: where, how, to what or why"
            )
        return Origin(cast(Kind, kinds[0]), text)

    def take(self, value: Any, dotted: str, around: Origin | None) -> Any:
        origin = around
        if isinstance(value, dict):
            if "unknown" in value:
                if set(value) != {"unknown"} or not isinstance(value["unknown"], str):
                    raise self.error(dotted, 'found unknown with other keys; allowed: only { unknown = "why" }')
                self.unknown[dotted] = value["unknown"]
                return None
            extra = set(value) - KINDS - {"value"}
            if extra:
                raise self.error(
                    dotted, f"found an unknown key '{sorted(extra)[0]}'; allowed: value, {', '.join(sorted(KINDS))}"
                )
            origin = self.origin_of(value, dotted) or around
            value = value["value"]
        numbers = value if isinstance(value, list) else [value]
        is_number = any(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
        if is_number:
            if origin is not None:
                self.origins[dotted] = origin
            elif dotted.split(".", maxsplit=1)[0] not in COUNTS and dotted != "format":
                self.bare[dotted] = value
        return value


def _merge(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict) and key != "topology":
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def read_machine(path: Path, seen: tuple[str, ...] = ()) -> MachineFile:
    """Read a machine file, including the file that it extends.

    Raises:
        MachineFileError: The file is unreadable or invalid; the message names the file, the key and the reason.
    """
    try:
        raw = parse_toml(read_text(path, _MAX_BYTES), path.name)
    except UsageError as error:
        raise MachineFileError(str(error)) from error
    reader = _MachineFileReader(path)
    if raw.get("format") != FORMAT and "extends" not in raw:
        raise reader.error("format", f"found {quoted_value(raw.get('format'))}, this version reads {FORMAT}")
    data = reader.machine(raw)
    origins, unknown, root = reader.origins, reader.unknown, path.stem
    base_name = data.pop("extends", None)
    if base_name is not None:
        if "/" in base_name or "\0" in base_name:
            raise reader.error(
                "extends", f"found {quoted_value(base_name)}, the name of a file in the same folder is needed"
            )
        if base_name in (*seen, path.stem):
            raise reader.error("extends", f"found {quoted_value(base_name)}, which extends this file or is this file")
        if len(seen) == _MAX_BASES:
            raise reader.error(
                "extends",
                f"found {quoted_value(base_name)} after {_MAX_BASES} others; allowed: {_MAX_BASES} files in a chain",
            )
        base_path = path.parent / f"{base_name}.toml"
        if not base_path.is_file():
            base_path = FOLDER / base_path.name
        if not base_path.is_file():
            raise reader.error(
                "extends", f"found {quoted_value(base_name)}, which is neither in the same folder nor in the package"
            )
        base = read_machine(base_path, (*seen, path.stem))
        root = base.root
        data = _merge({"title": base.title, "publication": base.publication, "note": base.note, **base.data}, data)
        origins = {
            **{k: v for k, v in base.origins.items() if not k.startswith("topology.") or "topology" not in raw},
            **origins,
        }
        unknown = {k: v for k, v in {**base.unknown, **unknown}.items() if k not in reader.origins}
    return MachineFile(
        name=path.stem,
        path=path,
        title=data.pop("title", path.stem),
        publication=data.pop("publication", ""),
        note=data.pop("note", ""),
        data={k: v for k, v in data.items() if k not in {"format", "abstract"}},
        origins=origins,
        unknown=unknown,
        root=root,
    )


@cache
@cache
def machine_names() -> tuple[str, ...]:
    """Return the names of the machines in the package, without abstract ones."""
    return tuple(
        sorted(
            p.stem for p in FOLDER.glob("*.toml") if not tomllib.loads(p.read_text(encoding="utf-8")).get("abstract")
        )
    )


def find_machine(name: str, settings: list[str] | None = None) -> MachineFile:
    """Find a machine by name or path, and apply the values of `--set`.

    Raises:
        UsageError: The machine is unknown; the message suggests similar names.
    """
    if name.endswith(".toml") or "/" in name:
        machine = read_machine(Path(name))
    elif name in machine_names():
        machine = read_machine(FOLDER / f"{name}.toml")
    else:
        similar = difflib.get_close_matches(name, machine_names(), 3, 0.3)
        raise UsageError(
            f"machine: found no machine '{quoted(name)}'"
            + (f", similar names: {', '.join(similar)}" if similar else ""),
            "use a name from meshmark model list, or the path of a machine file",
        )
    return machine.with_settings(settings or [])


def check_text(machine: MachineFile, error: MeshmarkError) -> MachineFileError:
    """Return an error of the simulator, prefixed with the name of the machine file."""
    return MachineFileError(f"{machine.path.name}: {error}")
