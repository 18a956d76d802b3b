"""Describes a machine of one or two sockets by a few numbers from its documents or other tools, and checks them.

`model.from_numbers` fits a machine file to these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshmark.errors import UsageError
from meshmark.values.units import plain

SOCKETS: Final[Mapping[str, int]] = {"one-socket": 1, "two-socket": 2}
LINE_BYTES: Final = 64
MOST_CPUS: Final = 512  # CPUs of a socket, see native/model/network/graph.hpp
MOST_LINES: Final = 256  # outstanding lines of a core, including prefetches; more than any known core has
MOST_ACCESS: Final = 0.9  # share of the idle latency that is spent in the memory and its controller
USUAL_CHANNELS: Final = 8  # memory channels of a socket
STORES: Final = ("ordinary", "streaming")
_FEW: Final = {1: "a number", 2: "an even number"}


@dataclass(frozen=True, slots=True)
class KeyQuantity:
    """Unit, limits and meaning of a number that describes a machine. `of_two`: it exists only with two sockets."""

    unit: str
    low: float
    high: float
    help: str
    of_two: bool = False


QUANTITIES: Final[Mapping[str, KeyQuantity]] = {
    "cores": KeyQuantity("1", 1, 2 * MOST_CPUS, "cores of the machine"),
    "idle-local": KeyQuantity("s", 5e-9, 1e-5, "load latency of idle memory, own socket"),
    "idle-remote": KeyQuantity("s", 5e-9, 1e-5, "load latency of idle memory, other socket", of_two=True),
    "read": KeyQuantity("B/s", 1e8, 1e14, "read bandwidth of all cores, each from its own socket"),
    "triad": KeyQuantity("B/s", 1e8, 1e14, "triad of all cores as STREAM counts it"),
    "core-read": KeyQuantity("B/s", 1e7, 1e13, "read bandwidth of one core"),
    "link": KeyQuantity(
        "B/s", 1e7, 1e14, "read bandwidth of one socket's cores from the other socket's memory", of_two=True
    ),
    "transfer": KeyQuantity(
        "s", 5e-9, 1e-5, "transfer of a modified line from a core of the other socket (one-socket: of the same one)"
    ),
    "loaded": KeyQuantity("s", 5e-9, 1e-4, "load latency of own memory while all cores read at the full rate"),
    "clock": KeyQuantity("Hz", 1e8, 2e10, "clock of the cores"),
    "l3": KeyQuantity("B", 1 << 16, 1 << 30, "last-level cache of a socket"),
}
REQUIRED: Final = ("cores", "idle-local", "idle-remote", "read")


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """A number of a machine in SI units.

    Attributes:
        source: Where the number comes from, in the words of the machine file.
        assumed: The number is a guess because no source states it.
    """

    value: float
    source: str
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class KeyNumbers:
    """The numbers of a machine by name in `QUANTITIES`.

    Attributes:
        store: Kind of stores of the triad, one of `STORES`.
        channels: Memory channels of a socket, which determine how long accesses queue; None: `USUAL_CHANNELS`.
    """

    sockets: int
    given: Mapping[str, KeyNumber]
    store: str = "ordinary"
    channels: int | None = None

    def value(self, name: str) -> float | None:
        """Return the value of a number; None if it is not given."""
        return self.given[name].value if name in self.given else None

    def need(self, name: str) -> float:
        """Return the value of a given number."""
        return self.given[name].value

    @property
    def cores_each(self) -> int:
        """Return the number of cores of a socket."""
        return int(self.need("cores")) // self.sockets


def show(name: str, value: float) -> str:
    """Return the value of the number `name` with its unit."""
    unit = QUANTITIES[name].unit
    return f"{value / 1e9:.4g} GHz" if unit == "Hz" else f"{value:g}" if unit == "1" else plain(value, unit)


def required(sockets: int) -> list[str]:
    """Return the names of the numbers that are required for a machine with this many sockets."""
    return [name for name in REQUIRED if sockets > 1 or not QUANTITIES[name].of_two]


def check(numbers: KeyNumbers, prefix: str = "--") -> None:
    """Reject numbers that are impossible on any machine.

    Args:
        numbers: The key numbers.
        prefix: Text before the name of a number in messages.

    Raises:
        UsageError: A number is out of range or impossible together with another number; the message names both.
    """

    def refuse(name: str, reason: str) -> UsageError:
        return UsageError(f"{prefix}{name}: found {show(name, numbers.need(name))}{reason}")

    def at_most(name: str, limit: float, reason: str) -> None:
        if (value := numbers.value(name)) is not None and value > limit:
            raise refuse(name, f"; allowed: at most {show(name, limit)}, {reason}")

    for name, number in numbers.given.items():
        quantity = QUANTITIES[name]
        if quantity.of_two and numbers.sockets == 1:
            raise refuse(name, " of a machine with one socket; allowed: with two-socket")
        if not quantity.low <= number.value <= quantity.high:
            raise refuse(name, f"; allowed: {show(name, quantity.low)} to {show(name, quantity.high)}")
    cores, sockets = int(numbers.need("cores")), numbers.sockets
    if cores % sockets or cores // sockets > MOST_CPUS:
        raise refuse("cores", f"; allowed: {_FEW[sockets]} up to {sockets * MOST_CPUS}")
    if cores == 1 and "transfer" in numbers.given:
        raise refuse("transfer", " of a machine with one core; allowed: with two cores or more")
    local, read = numbers.need("idle-local"), numbers.need("read")
    remote = numbers.value("idle-remote")
    if remote is not None and remote < local:
        raise refuse("idle-remote", f"; allowed: at least {prefix}idle-local, {show('idle-local', local)}")
    max_core_rate = MOST_LINES * LINE_BYTES / local
    at_most(
        "read", cores * max_core_rate, f"{MOST_LINES} lines on their way to each of {cores} cores at the idle latency"
    )
    at_most("core-read", max_core_rate, f"{MOST_LINES} lines on their way to a core at the idle latency")
    at_most("core-read", read, f"the {prefix}read of all cores")
    core_rate = numbers.value("core-read")
    if core_rate is not None and core_rate * cores < read:
        raise refuse(
            "read", f"; allowed: at most {show('read', core_rate * cores)}, {prefix}core-read times {cores} cores"
        )
    loaded = numbers.value("loaded")
    if loaded is not None and loaded < local:
        raise refuse("loaded", f"; allowed: at least {prefix}idle-local, {show('idle-local', local)}")
    at_most(
        "loaded", MOST_LINES * LINE_BYTES * cores / read, f"{MOST_LINES} lines on their way to each of {cores} cores"
    )
    at_most("link", read / sockets, f"what the memory of a socket gives, {prefix}read / {sockets}")
    at_most("triad", read * 1.5, f"1.5 times {prefix}read: all of its operands are in the same memory")


def conflicts(numbers: KeyNumbers, prefix: str = "--") -> dict[str, str]:
    """Return the reason, by name, for each number that contradicts others although each is possible by itself."""
    reasons = {}
    read, triad = numbers.need("read"), numbers.value("triad")
    max_triad = read * (0.75 if numbers.store == "ordinary" else 1.0)
    if triad is not None and triad > max_triad * 1.001:
        reasons["triad"] = (
            f"with {numbers.store} stores, {show('read', read)} of {prefix}read give at most {show('triad', max_triad)}"
            + (f"; if the stores bypass the caches: {prefix}store streaming" if numbers.store == "ordinary" else "")
        )
    transfer, local, remote = (numbers.value(n) for n in ("transfer", "idle-local", "idle-remote"))
    if transfer is not None and local is not None:
        min_transfer = (remote or local) - MOST_ACCESS * local
        if transfer < min_transfer:
            reasons["transfer"] = (
                f"the way there and back alone takes {show('transfer', min_transfer)} by the idle latencies"
            )
    return reasons
