"""Limits what the runs of a configuration may use of the machine: part of the last-level caches, a clock, prefetchers.

Sources: Documentation/filesystems/resctrl.rst and Documentation/admin-guide/pm/cpufreq.rst of the Linux kernel.

`undoing` undoes each limit when the run ends, also if this process is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.applications.resources.prefetcher_switch import DEVICES, switched
from meshmark.applications.resources.undoing import alone, undone
from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.machine.topology import Topology
from meshmark.values import grammar
from meshmark.values.units import size

RESCTRL: Final = Path("/sys/fs/resctrl")
CPUFREQ: Final = Path("/sys/devices/system/cpu/cpufreq")
LIMITS: Final = ("cache", "cache_method", "clock", "prefetchers")
NEVER_USUAL: Final = ("prefetchers", "cache_method")  # every value of these changes the machine
ALL: Final = "all"
RESCTRL_METHOD: Final = "resctrl"
NEIGHBOURS: Final = "neighbours"
METHODS: Final = (RESCTRL_METHOD, NEIGHBOURS)  # ways to limit the cache
_NEAR: Final = 0.01  # relative tolerance between a requested size and a multiple of the assignable size
_OBEYED: Final = 0.05  # relative tolerance between a requested clock and the clock that the driver set
_CLOCK: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([MG])Hz")


def cache_bytes(at: str, text: str) -> int | None:
    """Return the size that a value of `cache` requests, in B; None for all.

    Raises:
        UsageError: The text is not a size.
    """
    if text == ALL:
        return None
    sizes = grammar.sizes(at, text)
    if len(sizes) != 1 or sizes[0] == 0:
        raise UsageError(f"{at}: found '{quoted(text)}'; allowed: sizes such as 8MiB, {ALL}")
    return sizes[0]


def clock_hz(at: str, text: str) -> float | None:
    """Return the frequency that a value of `clock` requests, in Hz; None for all.

    Raises:
        UsageError: The text is not a frequency.
    """
    if text == ALL:
        return None
    match = _CLOCK.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{at}: found '{quoted(text)}'; allowed: frequencies such as 2.4GHz or 800MHz, {ALL}")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]]


def usual_clock() -> float | str:
    """Return the clock of the value `all`, in Hz, or the reason why it is not known.

    The clock equals its limit only if boost is off.
    """
    try:
        hz = {float(policy.now) * 1e3 for policy in _read_policies()}
    except (AbsentError, ValueError) as error:
        return f"the limit of the clock is not known: {error}"
    if len(hz) > 1:
        return "the limit of the clock is not the same for all CPUs"
    for file, off_value in ((CPUFREQ / "boost", "0"), (CPUFREQ.parent / "intel_pstate" / "no_turbo", "1")):
        with contextlib.suppress(OSError):
            if file.read_text(encoding="ascii").strip() != off_value:
                return f"its clock is not known: boost is on ({file})"
    return hz.pop()


def check_limits(dimensions: Mapping[str, Sequence[str]], machine: Callable[[], Topology]) -> None:
    """Check that this machine can set the limits that the dimensions state.

    Raises:
        AbsentError: The machine cannot set such a limit at all.
        UsageError: The machine cannot set a limit to one of the values.
    """
    by_resctrl = RESCTRL_METHOD in dimensions.get("cache_method", METHODS)
    for text in dimensions.get("cache", ()) if by_resctrl else ():
        if (requested_bytes := cache_bytes("dimensions.cache", text)) is not None:
            CacheWays.from_topology(machine()).bits(requested_bytes)
    for text in dimensions.get("clock", ()):
        if (hz := clock_hz("dimensions.clock", text)) is not None:
            for policy in _policies():
                policy.check(hz)
    for text in dimensions.get("prefetchers", ()):
        # Only an attempt shows whether the kernel permits the change, and whether a hypervisor ignores it.
        with alone(DEVICES) as lock, switched(text, lock):
            pass


@contextlib.contextmanager
def limited(values: Mapping[str, str], machine: Callable[[], Topology]) -> Iterator[Path | None]:
    """Set the limits that the values of a configuration state, until the end of the context.

    Yields:
        The file into which a process must write its id to be limited; None if that is not needed.

    Raises:
        AbsentError, UsageError: See `check_limits`.
        MeshmarkError: A limit cannot be set or undone.
    """
    with contextlib.ExitStack() as stack:
        tasks = None
        if "cache" in values and values.get("cache_method", RESCTRL_METHOD) == RESCTRL_METHOD:
            lock = stack.enter_context(alone(RESCTRL))
            if (requested_bytes := cache_bytes("dimensions.cache", values["cache"])) is not None:
                tasks = stack.enter_context(CacheWays.from_topology(machine()).group(requested_bytes, lock))
        if "clock" in values:
            lock = stack.enter_context(alone(CPUFREQ))
            if (hz := clock_hz("dimensions.clock", values["clock"])) is not None:
                stack.enter_context(_clocked(hz, lock))
        if "prefetchers" in values:
            stack.enter_context(switched(values["prefetchers"], stack.enter_context(alone(DEVICES))))
        yield tasks


def has_resctrl() -> bool:
    """Return whether the resctrl file system is mounted."""
    return (RESCTRL / "schemata").exists()


@dataclass(frozen=True, slots=True)
class CacheWays:
    """Parts of the last-level caches that the resctrl file system can assign, by bits of a mask.

    Attributes:
        bits_all: Number of bits in the mask of a cache.
        bits_least: Minimum number of bits of a group.
        each_bytes: Cache size in B that one bit assigns.
        caches: Ids of the caches.
    """

    bits_all: int
    bits_least: int
    each_bytes: float
    caches: tuple[str, ...]

    @staticmethod
    def from_topology(machine: Topology) -> CacheWays:
        """Return the parts that this machine can assign.

        Raises:
            AbsentError: The machine has no such caches, or this process cannot assign them.
        """
        if not has_resctrl():
            raise AbsentError(
                f"dimensions.cache: found no resctrl file system in {RESCTRL}",
                "mount -t resctrl resctrl /sys/fs/resctrl, as root, on a processor that can assign its cache",
            )
        info = RESCTRL / "info" / "L3"
        if not info.is_dir():
            raise AbsentError(
                "dimensions.cache: found no L3 caches that resctrl can assign",
                "mount resctrl without the option cdp, on a processor that can assign its L3 cache",
            )
        if not os.access(RESCTRL, os.W_OK):
            raise AbsentError(f"dimensions.cache: {RESCTRL} is not writable", "run as root")
        sizes = {c.size_bytes for c in machine.caches if c.level == 3 and c.size_bytes}
        try:
            mask = int((info / "cbm_mask").read_text(encoding="ascii"), 16)
            minimum_bits = int((info / "min_cbm_bits").read_text(encoding="ascii"))
            schemata = (RESCTRL / "schemata").read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise AbsentError(f"dimensions.cache: cannot read {RESCTRL}: {error}") from error
        line = re.search(r"^\s*L3:(.+)$", schemata, re.M)
        if line is None or len(sizes) != 1 or mask == 0:
            raise AbsentError("dimensions.cache: found L3 caches of unknown or different sizes")
        caches = tuple(part.partition("=")[0].strip() for part in line[1].split(";"))
        return CacheWays(mask.bit_count(), max(1, minimum_bits), sizes.pop() / mask.bit_count(), caches)

    def bits(self, wanted: int) -> int:
        """Return the number of bits that give `wanted` bytes of each cache.

        Raises:
            UsageError: No number of bits gives this size.
        """
        bits = round(wanted / self.each_bytes)
        if not self.bits_least <= bits <= self.bits_all or abs(bits * self.each_bytes / wanted - 1) > _NEAR:
            low, high = (size(n * self.each_bytes) for n in (self.bits_least, self.bits_all))
            raise UsageError(
                f"dimensions.cache: found {size(wanted)}; allowed: multiples of {size(self.each_bytes)} "
                f"from {low} to {high}, {ALL}"
            )
        return bits

    @contextlib.contextmanager
    def group(self, wanted: int, lock: int | None) -> Iterator[Path]:
        """Make a group of processes that may fill `wanted` bytes of each cache, and yield its file of tasks."""
        mask = (1 << self.bits(wanted)) - 1
        folder = RESCTRL / f"meshmark-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            raise MeshmarkError(f"dimensions.cache: cannot create {folder}: {error.strerror}") from error
        with undone([("remove", folder, "")], lock):
            try:
                line = "L3:" + ";".join(f"{cache}={mask:x}" for cache in self.caches)
                (folder / "schemata").write_text(line + "\n", encoding="ascii")
            except OSError as error:
                raise MeshmarkError(f"dimensions.cache: cannot set {folder}: {error.strerror}") from error
            yield folder / "tasks"


@dataclass(frozen=True, slots=True)
class _ClockPolicy:
    """CPUs whose clock is limited together. Frequencies are in kHz."""

    folder: Path
    low: int
    high: int
    now: str

    def check(self, hz: float) -> None:
        if not self.low <= hz / 1e3 <= self.high:
            range_text = f"{self.low / 1e6:g}GHz to {self.high / 1e6:g}GHz, {ALL}"
            raise UsageError(f"dimensions.clock: found {hz / 1e9:g}GHz; allowed: {range_text}")

    @property
    def file(self) -> Path:
        return self.folder / "scaling_max_freq"


def _policies() -> list[_ClockPolicy]:
    """Return the policies of the CPUs that this process may use, and check that it may change them.

    Raises:
        AbsentError: There are no policies, or they may not be changed.
    """
    policies = _read_policies()
    for policy in policies:
        if not os.access(policy.file, os.W_OK):
            raise AbsentError(f"dimensions.clock: {policy.file} is not writable", "run as root")
    return policies


def _read_policies() -> list[_ClockPolicy]:
    """Return the policies of the CPUs that this process may use.

    Raises:
        AbsentError: There are no policies, or one cannot be read.
    """
    allowed_cpus, policies = os.sched_getaffinity(0), []
    for folder in sorted(CPUFREQ.glob("policy*")):
        try:
            cpus = {int(word) for word in (folder / "affected_cpus").read_text(encoding="ascii").split()}
            low, high, current = (
                (folder / name).read_text(encoding="ascii").strip()
                for name in ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_max_freq")
            )
            policy = _ClockPolicy(folder, int(low), int(high), current)
        except (OSError, ValueError) as error:
            raise AbsentError(f"dimensions.clock: cannot read {folder}: {error}") from error
        if cpus & allowed_cpus:
            policies.append(policy)
    if not policies:
        raise AbsentError(f"dimensions.clock: found no clock that can be limited in {CPUFREQ}")
    return policies


@contextlib.contextmanager
def _clocked(hz: float, lock: int | None) -> Iterator[None]:
    """Limit the clock of all CPUs that this process may use, until the end of the context."""
    policies = _policies()
    with undone([("write", policy.file, policy.now) for policy in policies], lock):
        for policy in policies:
            policy.check(hz)
            try:
                policy.file.write_text(f"{round(hz / 1e3)}\n", encoding="ascii")
                actual_khz = int(policy.file.read_text(encoding="ascii"))
            except (OSError, ValueError) as error:
                raise MeshmarkError(f"dimensions.clock: cannot limit {policy.folder.name}: {error}") from error
            if abs(actual_khz * 1e3 / hz - 1) > _OBEYED:
                raise MeshmarkError(
                    f"dimensions.clock: requested {hz / 1e9:g}GHz of {policy.folder.name}, "
                    f"which uses {actual_khz / 1e6:g}GHz"
                )
        yield
