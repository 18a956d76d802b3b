"""Sets what the runs of a configuration may use of the machine: a part of the last-level caches, a clock, prefetchers.

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

from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.machine.topology import Topology
from meshmark.place.app.prefetcher_switch import DEVICES, switched
from meshmark.place.app.undoing import alone, undone
from meshmark.values import grammar
from meshmark.values.units import size

RESCTRL: Final = Path("/sys/fs/resctrl")
CPUFREQ: Final = Path("/sys/devices/system/cpu/cpufreq")
LIMITS: Final = ("cache", "cache_method", "clock", "prefetchers")
NEVER_USUAL: Final = ("prefetchers", "cache_method")  # no value of which leaves the machine as it is
ALL: Final = "all"
RESCTRL_METHOD: Final = "resctrl"
NEIGHBOURS: Final = "neighbours"
METHODS: Final = (RESCTRL_METHOD, NEIGHBOURS)  # of limiting the cache
_NEAR: Final = 0.01  # of a size, to a multiple of what can be assigned
_OBEYED: Final = 0.05  # of a clock, to what the driver made of it
_CLOCK: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([MG])Hz")


def cache_bytes(at: str, text: str) -> int | None:
    """The size that a value of `cache` asks for; None for all.

    Raises:
        UsageError: It is no size.
    """
    if text == ALL:
        return None
    found = grammar.sizes(at, text)
    if len(found) != 1 or found[0] == 0:
        raise UsageError(f"{at}: found '{quoted(text)}'; allowed: sizes such as 8MiB, {ALL}")
    return found[0]


def clock_hz(at: str, text: str) -> float | None:
    """The frequency that a value of `clock` asks for; None for all.

    Raises:
        UsageError: It is no frequency.
    """
    if text == ALL:
        return None
    match = _CLOCK.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{at}: found '{quoted(text)}'; allowed: frequencies such as 2.4GHz or 800MHz, {ALL}")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]]


def usual_clock() -> float | str:
    """Return the clock of `all`, in Hz, or the reason why it is not known: only without boost is it the limit."""
    try:
        hz = {float(policy.now) * 1e3 for policy in _read_policies()}
    except (AbsentError, ValueError) as error:
        return f"the limit of the clock is not known: {error}"
    if len(hz) > 1:
        return "the limit of the clock is not the same for all CPUs"
    for file, off in ((CPUFREQ / "boost", "0"), (CPUFREQ.parent / "intel_pstate" / "no_turbo", "1")):
        with contextlib.suppress(OSError):
            if file.read_text(encoding="ascii").strip() != off:
                return f"its clock is not known: boost is on ({file})"
    return hz.pop()


def check_limits(dimensions: Mapping[str, Sequence[str]], machine: Callable[[], Topology]) -> None:
    """Check that this machine can limit what the dimensions say.

    Raises:
        AbsentError: It cannot limit this at all.
        UsageError: It cannot limit it to a value.
    """
    by_resctrl = RESCTRL_METHOD in dimensions.get("cache_method", METHODS)
    for text in dimensions.get("cache", ()) if by_resctrl else ():
        if (wanted := cache_bytes("dimensions.cache", text)) is not None:
            Ways.of(machine()).bits(wanted)
    for text in dimensions.get("clock", ()):
        if (hz := clock_hz("dimensions.clock", text)) is not None:
            for policy in _policies():
                policy.check(hz)
    for text in dimensions.get("prefetchers", ()):
        # Only a try shows whether the kernel permits it, and whether a hypervisor ignores it.
        with alone(DEVICES) as lock, switched(text, lock):
            pass


@contextlib.contextmanager
def limited(values: Mapping[str, str], machine: Callable[[], Topology]) -> Iterator[Path | None]:
    """Limits what the values of a configuration say, until the end of the context.

    Yields:
        The file into which a process writes its id to be limited; None if it needs not.

    Raises:
        AbsentError, UsageError: As `check_limits`.
        MeshmarkError: A limit cannot be set or undone.
    """
    with contextlib.ExitStack() as stack:
        joined = None
        if "cache" in values and values.get("cache_method", RESCTRL_METHOD) == RESCTRL_METHOD:
            lock = stack.enter_context(alone(RESCTRL))
            if (wanted := cache_bytes("dimensions.cache", values["cache"])) is not None:
                joined = stack.enter_context(Ways.of(machine()).group(wanted, lock))
        if "clock" in values:
            lock = stack.enter_context(alone(CPUFREQ))
            if (hz := clock_hz("dimensions.clock", values["clock"])) is not None:
                stack.enter_context(_clocked(hz, lock))
        if "prefetchers" in values:
            stack.enter_context(switched(values["prefetchers"], stack.enter_context(alone(DEVICES))))
        yield joined


def has_resctrl() -> bool:
    """Whether the resctrl file system is mounted."""
    return (RESCTRL / "schemata").exists()


@dataclass(frozen=True, slots=True)
class Ways:
    """Parts of the last-level caches that the resctrl file system can assign, by bits of a mask.

    Attributes:
        bits_all: In the mask of a cache.
        bits_least: That a group must have.
        each_bytes: What a bit stands for.
        caches: Ids of the caches.
    """

    bits_all: int
    bits_least: int
    each_bytes: float
    caches: tuple[str, ...]

    @staticmethod
    def of(machine: Topology) -> Ways:
        """Those of this machine.

        Raises:
            AbsentError: It has none, or they cannot be assigned.
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
            raise AbsentError(f"dimensions.cache: {RESCTRL} may not be written", "run as root")
        sizes = {c.size_bytes for c in machine.caches if c.level == 3 and c.size_bytes}
        try:
            mask = int((info / "cbm_mask").read_text(encoding="ascii"), 16)
            least = int((info / "min_cbm_bits").read_text(encoding="ascii"))
            schemata = (RESCTRL / "schemata").read_text(encoding="ascii")
        except (OSError, ValueError) as why:
            raise AbsentError(f"dimensions.cache: cannot read {RESCTRL}: {why}") from why
        line = re.search(r"^\s*L3:(.+)$", schemata, re.M)
        if line is None or len(sizes) != 1 or mask == 0:
            raise AbsentError("dimensions.cache: found L3 caches of unknown or different sizes")
        caches = tuple(part.partition("=")[0].strip() for part in line[1].split(";"))
        return Ways(mask.bit_count(), max(1, least), sizes.pop() / mask.bit_count(), caches)

    def bits(self, wanted: int) -> int:
        """How many bits give so many bytes of each cache.

        Raises:
            UsageError: No number does.
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
        """A group of processes that may fill so many bytes of each cache; yields its file of tasks."""
        mask = (1 << self.bits(wanted)) - 1
        folder = RESCTRL / f"meshmark-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as why:
            raise MeshmarkError(f"dimensions.cache: cannot make {folder}: {why.strerror}") from why
        with undone([("remove", folder, "")], lock):
            try:
                line = "L3:" + ";".join(f"{cache}={mask:x}" for cache in self.caches)
                (folder / "schemata").write_text(line + "\n", encoding="ascii")
            except OSError as why:
                raise MeshmarkError(f"dimensions.cache: cannot set {folder}: {why.strerror}") from why
            yield folder / "tasks"


@dataclass(frozen=True, slots=True)
class _Policy:
    """CPUs whose clock is limited together. Frequencies in kHz."""

    folder: Path
    low: int
    high: int
    now: str

    def check(self, hz: float) -> None:
        if not self.low <= hz / 1e3 <= self.high:
            allowed = f"{self.low / 1e6:g}GHz to {self.high / 1e6:g}GHz, {ALL}"
            raise UsageError(f"dimensions.clock: found {hz / 1e9:g}GHz; allowed: {allowed}")

    @property
    def file(self) -> Path:
        return self.folder / "scaling_max_freq"


def _policies() -> list[_Policy]:
    """Return the policies of the CPUs that this process may use, which it may change.

    Raises:
        AbsentError: There are none, or they may not be changed.
    """
    policies = _read_policies()
    for policy in policies:
        if not os.access(policy.file, os.W_OK):
            raise AbsentError(f"dimensions.clock: {policy.file} may not be written", "run as root")
    return policies


def _read_policies() -> list[_Policy]:
    """Return the policies of the CPUs that this process may use.

    Raises:
        AbsentError: There are none, or one cannot be read.
    """
    allowed, found = os.sched_getaffinity(0), []
    for folder in sorted(CPUFREQ.glob("policy*")):
        try:
            cpus = {int(word) for word in (folder / "affected_cpus").read_text(encoding="ascii").split()}
            low, high, now = (
                (folder / name).read_text(encoding="ascii").strip()
                for name in ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_max_freq")
            )
            policy = _Policy(folder, int(low), int(high), now)
        except (OSError, ValueError) as why:
            raise AbsentError(f"dimensions.clock: cannot read {folder}: {why}") from why
        if cpus & allowed:
            found.append(policy)
    if not found:
        raise AbsentError(f"dimensions.clock: found no clock that can be limited in {CPUFREQ}")
    return found


@contextlib.contextmanager
def _clocked(hz: float, lock: int | None) -> Iterator[None]:
    """Limits the clock of all CPUs that this process may use."""
    policies = _policies()
    with undone([("write", policy.file, policy.now) for policy in policies], lock):
        for policy in policies:
            policy.check(hz)
            try:
                policy.file.write_text(f"{round(hz / 1e3)}\n", encoding="ascii")
                obeyed = int(policy.file.read_text(encoding="ascii"))
            except (OSError, ValueError) as why:
                raise MeshmarkError(f"dimensions.clock: cannot limit {policy.folder.name}: {why}") from why
            if abs(obeyed * 1e3 / hz - 1) > _OBEYED:
                raise MeshmarkError(
                    f"dimensions.clock: asked {policy.folder.name} for {hz / 1e9:g}GHz, it took {obeyed / 1e6:g}GHz"
                )
        yield
