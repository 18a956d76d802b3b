"""Parses memory modules from the SMBIOS table of the firmware.

Source: DMTF DSP0134, System Management BIOS reference specification 3.7, section 7.18 (type 17).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_KINDS = {
    0x12: "DDR",
    0x13: "DDR2",
    0x14: "DDR2 FB-DIMM",
    0x18: "DDR3",
    0x19: "FBD2",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x1F: "non-volatile",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}
_MEMORY_DEVICE, _MEMORY_ARRAY, _END = 17, 16, 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimm:
    """A populated memory module. Fields that the firmware does not report are None."""

    slot: str
    bank: str
    size_bytes: int | None
    kind: str | None
    rate_t_per_s: int | None  # configured transfers per second
    max_rate_t_per_s: int | None
    width_bits: int | None  # without ECC
    part: str


def structures(table: bytes) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Yield (type, formatted area with header, strings) of each structure, up to the end or the first damaged one."""
    offset = 0
    while offset + 4 <= len(table):
        kind, length = table[offset], table[offset + 1]
        if length < 4 or offset + length > len(table):
            return
        end = table.find(b"\0\0", offset + length)
        if end < 0:
            return
        strings = table[offset + length : end].split(b"\0") if end > offset + length else []
        yield kind, table[offset : offset + length], strings
        if kind == _END:
            return
        offset = end + 2


def dimms(table: bytes) -> list[Dimm]:
    """Return the populated memory modules of a raw table (/sys/firmware/dmi/tables/DMI)."""
    modules = []
    for kind, area, strings in structures(table):
        if kind != _MEMORY_DEVICE or len(area) < 0x15:
            continue

        def word(offset: int, width: int = 2, area: bytes = area) -> int:
            return int.from_bytes(area[offset : offset + width], "little") if len(area) >= offset + width else 0

        def string(offset: int, area: bytes = area, strings: list[bytes] = strings) -> str:
            number = area[offset] if len(area) > offset else 0
            return strings[number - 1].decode("latin-1").strip() if 0 < number <= len(strings) else ""

        size = word(0x0C)
        if size == 0:
            continue  # an empty slot
        size_bytes: int | None = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
        if size == 0x7FFF:
            size_bytes = (word(0x1C, 4) & 0x7FFFFFFF) << 20
        elif size == 0xFFFF:
            size_bytes = None
        rates = []
        for offset, extended in ((0x20, 0x58), (0x15, 0x54)):
            rate = word(offset)
            rate = word(extended, 4) & 0x7FFFFFFF if rate == 0xFFFF else rate
            rates.append(rate * 1_000_000 or None)
        width = word(0x0A)
        modules.append(
            Dimm(
                slot=string(0x10),
                bank=string(0x11),
                size_bytes=size_bytes or None,
                kind=_KINDS.get(area[0x12]),
                rate_t_per_s=rates[0],
                max_rate_t_per_s=rates[1],
                width_bits=width if width not in {0, 0xFFFF} else None,
                part=string(0x1A),
            )
        )
    return modules


def channels(modules: Sequence[Dimm]) -> tuple[int, str] | None:
    """Return the number of populated channels and the rule that counted them; None if no rule matches the slots.

    Names of slots are not standardized, so a rule applies only if it matches every module.
    """
    rules = (
        ("'CHANNEL x' in bank or slot", r"CHAN(?:NEL)?[ _-]*([A-Z0-9]+)"),
        ("'DIMM x1', letter = channel", r"DIMM[ _-]*([A-Z])[0-9]?(?![A-Z0-9])"),
        ("'MC x CH y' in bank or slot", r"(?:MC[ _-]*[0-9]+[ _-]*)?CH[ _-]*([0-9]+)"),
    )
    for name, pattern in rules:
        channel_keys = set()
        for module in modules:
            text = f"{module.bank} {module.slot}".upper()
            match = re.search(pattern, text)
            if match is None:
                break
            socket = re.search(r"(?:NODE|CPU|PROC(?:ESSOR)?|SOCKET|\bP)[ _-]*([0-9]+)", text)
            controller = re.search(r"(?:MC|IMC|CONTROLLER)[ _-]*([0-9]+)", text)
            channel_keys.add((socket and socket[1], controller and controller[1], match[1]))
        else:
            if channel_keys:
                return len(channel_keys), name
    return None


def without_serials(table: bytes) -> bytes:
    """Return the table reduced to memory arrays and modules, without serial numbers and asset tags."""
    reduced_table = bytearray()
    for kind, area, strings in structures(table):
        if kind not in {_MEMORY_DEVICE, _MEMORY_ARRAY, _END}:
            continue
        texts = list(strings)
        for offset in (0x18, 0x19):
            if kind == _MEMORY_DEVICE and len(area) > offset and 0 < area[offset] <= len(texts):
                texts[area[offset] - 1] = b"-"
        reduced_table += area + (b"".join(s + b"\0" for s in texts) or b"\0") + b"\0"
    return bytes(reduced_table)
