"""Servers from which `trees.py` makes trees: their processors, cores, threads, nodes and links between packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The properties of a machine that its tree states.

    Attributes:
        cpuinfo: Keys and values of /proc/cpuinfo that are the same for all processors.
        links: Ends of links between packages: (package, port, other package, its port).
    """

    cpuinfo: tuple[tuple[str, str], ...]
    packages: int
    cores: int  # per package
    threads: int = 1  # per core
    gib: int = 64  # per node
    links: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def cpus(self) -> int:
        return self.packages * self.cores * self.threads

    def package_of(self, cpu: int) -> int:
        """Return the package of a CPU.

        The first threads of all cores precede the second ones, as most firmware numbers them.
        """
        return cpu % (self.packages * self.cores) // self.cores

    def core_of(self, cpu: int) -> int:
        return cpu % self.cores

    def cpus_of(self, package: int) -> list[int]:
        return [cpu for cpu in range(self.cpus) if self.package_of(cpu) == package]

    def siblings(self, cpu: int) -> list[int]:
        step = self.packages * self.cores
        return list(range(cpu % step, self.cpus, step))

    @property
    def first_cpus(self) -> str:
        """Return one CPU per package: the mask of a PMU outside of the cores."""
        return list_text([self.cpus_of(p)[0] for p in range(self.packages)])

    def distance(self, a: int, b: int) -> int:
        if a == b:
            return 10
        direct = not self.links or any({a, b} == {link[0], link[2]} for link in self.links)
        return 21 if direct else 31


def list_text(numbers: Sequence[int]) -> str:
    """Return a list such as `0-3,8`, as the kernel prints it."""
    parts: list[str] = []
    for n in sorted(numbers):
        if parts and n == int(parts[-1].rpartition("-")[2]) + 1:
            parts[-1] = f"{parts[-1].partition('-')[0]}-{n}"
        else:
            parts.append(str(n))
    return ",".join(parts)


def _x86(vendor: str, family: int, model: int, name: str) -> tuple[tuple[str, str], ...]:
    return (
        ("vendor_id", vendor),
        ("cpu family", str(family)),
        ("model", str(model)),
        ("model name", name),
        ("stepping", "1"),
    )


def intel(model: int, name: str) -> tuple[tuple[str, str], ...]:
    return _x86("GenuineIntel", 6, model, name)


def _amd(family: int, model: int, name: str) -> tuple[tuple[str, str], ...]:
    return _x86("AuthenticAMD", family, model, name)


def _arm(implementer: int, part: int) -> tuple[tuple[str, str], ...]:
    return (
        ("BogoMIPS", "50.00"),
        ("Features", "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid"),
        ("CPU implementer", f"0x{implementer:02x}"),
        ("CPU architecture", "8"),
        ("CPU variant", "0x3"),
        ("CPU part", f"0x{part:03x}"),
        ("CPU revision", "1"),
    )


def parallel(count: int) -> tuple[tuple[int, int, int, int], ...]:
    return tuple((0, port, 1, port) for port in range(count))


# Each socket is linked to each other one by three ports. The ports continue the example of sysfs-devices-mapping: they
# differ at both ends.
_FULL_4 = ((0, 0, 1, 1), (1, 0, 3, 0), (2, 0, 3, 1), (0, 1, 2, 1), (0, 2, 3, 2), (1, 2, 2, 2))

# Two boards of four sockets with a link between any two of a board, and one from each socket to the corresponding
# socket of the other board: four ports per socket, at most two hops.
_PARTLY_8 = (
    *((a + 4 * board, pa, b + 4 * board, pb) for board in (0, 1) for a, pa, b, pb in _FULL_4),
    *((a, 3, a + 4, 3) for a in range(4)),
)

MACHINES: dict[str, Machine] = {
    "intel-hsx-2s": Machine(intel(63, "Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz"), 2, 8, 2, links=parallel(2)),
    "intel-bdx-2s": Machine(intel(79, "Intel(R) Xeon(R) CPU E5-2620 v4 @ 2.10GHz"), 2, 8, 2, links=parallel(2)),
    "intel-skx-4s": Machine(intel(85, "Intel(R) Xeon(R) Platinum 8156 CPU @ 3.60GHz"), 4, 4, 2, links=_FULL_4),
    "intel-icx-2s": Machine(intel(106, "Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz"), 2, 8, 2, links=parallel(3)),
    "intel-spr-2s": Machine(intel(143, "Intel(R) Xeon(R) Gold 6444Y"), 2, 16, 2, links=parallel(3)),
    "intel-spr-8s": Machine(intel(143, "Intel(R) Xeon(R) Platinum 8444H"), 8, 16, 2, links=_PARTLY_8),
    "intel-gnr-2s": Machine(intel(173, "Intel(R) Xeon(R) 6724P"), 2, 16, 2, links=parallel(4)),
    "intel-hybrid": Machine(intel(151, "12th Gen Intel(R) Core(TM) i9-12900K"), 1, 16),
    "amd-rome-2s": Machine(_amd(23, 49, "AMD EPYC 7282 16-Core Processor"), 2, 16, 2),
    "amd-genoa-2s": Machine(_amd(25, 17, "AMD EPYC 9124 16-Core Processor"), 2, 16, 2),
    "amd-turin-2s": Machine(_amd(26, 2, "AMD EPYC 9135 16-Core Processor"), 2, 16, 2),
    "ampere-altra-2s": Machine(_arm(0x41, 0xD0C), 2, 64),
    "nvidia-grace-2": Machine(_arm(0x41, 0xD4F), 2, 72, gib=240),
    "kunpeng-920-2s": Machine(_arm(0x48, 0xD01), 2, 48),
    "arm-dsu": Machine(_arm(0x41, 0xD42), 1, 4, gib=16),
}
NAMES = tuple(MACHINES)
