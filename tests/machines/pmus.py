"""The PMUs of each server of `servers.py`: formats and aliases from arch/x86/events and drivers/perf of Linux.

Only some PMUs of a machine are included, and only some aliases of a PMU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from machines.servers import Machine, list_text


@dataclass(frozen=True)
class Pmu:
    """A folder of /sys/devices with its files.

    Attributes:
        cpus: Text of `cpumask` (or of the file that `cpus_file` names); "" if there is no such file, as for PMUs
        that are on every CPU.
        events: Texts of the files by name, including `.scale` and `.unit`; with a newline if the kernel writes one.
        files: Further files of the folder.
    """

    name: str
    type: int
    format: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, str] = field(default_factory=dict)
    cpus: str | None = None
    cpus_file: str = "cpumask"
    files: Mapping[str, str] = field(default_factory=dict)


_UNCORE = {
    "event": "config:0-7\n",
    "umask": "config:8-15\n",
    "edge": "config:18\n",
    "inv": "config:23\n",
    "thresh": "config:24-31\n",
}
_UNCORE_WIDE = {**_UNCORE, "umask": "config:8-15,32-55\n"}
_CPU_INTEL = {
    "event": "config:0-7\n",
    "umask": "config:8-15\n",
    "edge": "config:18\n",
    "pc": "config:19\n",
    "inv": "config:23\n",
    "cmask": "config:24-31\n",
    "offcore_rsp": "config1:0-63\n",
    "ldlat": "config1:0-15\n",
}
_CPU_AMD = {
    "event": "config:0-7,32-35\n",
    "umask": "config:8-15\n",
    "edge": "config:18\n",
    "inv": "config:23\n",
    "cmask": "config:24-31\n",
}
_CPU_INTEL_EVENTS = {
    "cpu-cycles": "event=0x3c\n",
    "instructions": "event=0xc0\n",
    "cache-references": "event=0x2e,umask=0x4f\n",
    "cache-misses": "event=0x2e,umask=0x41\n",
    "branch-instructions": "event=0xc4\n",
    "branch-misses": "event=0xc5\n",
    "bus-cycles": "event=0x3c,umask=0x01\n",
    "ref-cycles": "event=0x00,umask=0x03\n",
}
_CPU_AMD_EVENTS = {
    "cpu-cycles": "event=0x76\n",
    "instructions": "event=0xc0\n",
    "cache-references": "event=0x60,umask=0xff\n",
    "cache-misses": "event=0x64,umask=0x09\n",
    "branch-instructions": "event=0xc2\n",
    "branch-misses": "event=0xc3\n",
    "stalled-cycles-frontend": "event=0xa9\n",
}
_ARMV8_EVENTS = {
    "cpu_cycles": "event=0x0011\n",
    "inst_retired": "event=0x0008\n",
    "l1d_cache": "event=0x0004\n",
    "l1d_cache_refill": "event=0x0003\n",
    "br_mis_pred": "event=0x0010\n",
    "bus_access": "event=0x0019\n",
    "stall_frontend": "event=0x0023\n",
    "stall_backend": "event=0x0024\n",
}


def _cas(reads: str, writes: str, clock: str) -> dict[str, str]:
    """Return the aliases of a memory channel. The texts of the uncore PMUs of Intel have no newline."""
    scaled = {"cas_count_read": reads, "cas_count_write": writes}
    events = {"clockticks": clock, **scaled}
    for name in scaled:
        events[f"{name}.scale"] = "6.103515625e-5"
        events[f"{name}.unit"] = "MiB"
    return events


class _Types:
    """Numbers of PMUs in the order of registration; the kernel itself uses the first eight."""

    def __init__(self) -> None:
        self.next = 8

    def __call__(self) -> int:
        self.next += 1
        return self.next - 1


def _own(cpu: Pmu | None, msr: bool, types: _Types) -> list[Pmu]:
    pmus = [Pmu("software", 1), Pmu("tracepoint", 2), Pmu("breakpoint", 5)]
    if cpu is not None:
        pmus.append(cpu)
    if msr:
        events = {"tsc": "event=0x00\n", "aperf": "event=0x01\n", "mperf": "event=0x02\n"}
        pmus.append(Pmu("msr", types(), {"event": "config:0-63\n"}, events))
    return pmus


def _stacks(machine: Machine, stack: int) -> dict[str, str]:
    """Return `segment:bus` of the root port of a stack, for each die; the first bus of the first die is 00."""
    step = 256 // machine.packages
    return {f"die{die}": f"0000:{die * step + stack * (step // 8):02x}\n" for die in range(machine.packages)}


def _ports(machine: Machine) -> dict[int, dict[str, str]]:
    """Return, by link of UPI, the files of its dies that name the other end; an unconnected port has no file."""
    ports: dict[int, dict[str, str]] = {}
    for a, pa, b, pb in machine.links:
        ports.setdefault(pa, {})[f"die{a}"] = f"upi_{pb},die_{b}\n"
        ports.setdefault(pb, {})[f"die{b}"] = f"upi_{pa},die_{a}\n"
    return dict(sorted(ports.items()))


def _xeon(machine: Machine, channels: int, aliases: Mapping[str, str], stacks: int, wide: bool) -> list[Pmu]:
    """Return memory channels, UPI links and I/O stacks of Skylake-SP and later processors."""
    types = _Types()
    pmus = _own(Pmu("cpu", 4, _CPU_INTEL, _CPU_INTEL_EVENTS), True, types)
    mask = machine.first_cpus + "\n"
    imc = _UNCORE_WIDE if wide and aliases.get("cas_count_read", "").startswith("event=0x05") else _UNCORE
    pmus += [Pmu(f"uncore_imc_{i}", types(), imc, aliases, mask) for i in range(channels)]
    pmus.append(
        Pmu(
            "uncore_imc_free_running_0",
            types(),
            {"event": "config:0-7\n", "umask": "config:8-15\n"},
            {"dclk": "event=0xff,umask=0x10"},
            mask,
        )
    )
    upi = {**_UNCORE, "umask": "config:8-15,32-55\n" if wide else "config:8-15,32-43,45-55\n"}
    pmus += [Pmu(f"uncore_upi_{port}", types(), upi, {}, mask, files=dies) for port, dies in _ports(machine).items()]
    iio = {
        **_UNCORE,
        "thresh": "config:24-35\n",
        "ch_mask": "config:36-47\n" if wide else "config:36-43\n",
        "fc_mask": "config:48-50\n" if wide else "config:44-46\n",
    }
    for i in range(stacks):
        pmus.append(Pmu(f"uncore_iio_{i}", types(), iio, {}, mask, files=_stacks(machine, i)))
    free = {
        "ioclk": "event=0xff,umask=0x10",
        "bw_in_port0": "event=0xff,umask=0x20",
        "bw_in_port0.scale": "3.814697266e-6",
        "bw_in_port0.unit": "MiB",
    }
    pmus += [
        Pmu(f"uncore_iio_free_running_{i}", types(), {"event": "config:0-7\n", "umask": "config:8-15\n"}, free, mask)
        for i in range(stacks)
    ]
    return pmus


def _hsx(machine: Machine) -> list[Pmu]:
    """Return the PMUs of Haswell-EP and Broadwell-EP; the kernel does not state where their QPI links lead."""
    types = _Types()
    pmus = _own(Pmu("cpu", 4, _CPU_INTEL, _CPU_INTEL_EVENTS), True, types)
    mask = machine.first_cpus + "\n"
    aliases = _cas("event=0x04,umask=0x03", "event=0x04,umask=0x0c", "event=0x00,umask=0x00")
    pmus += [
        Pmu(f"uncore_imc_{i}", types(), _UNCORE, aliases, mask) for i in (0, 1, 4, 5)
    ]  # the numbers have gaps there
    qpi = {**_UNCORE, "event": "config:0-7,21\n", "match_rds": "config1:48-51\n", "mask_rds": "config2:48-51\n"}
    return [*pmus, *(Pmu(f"uncore_qpi_{i}", types(), qpi, {}, mask) for i in (0, 1))]


def _skx(machine: Machine) -> list[Pmu]:
    return _xeon(machine, 6, _cas("event=0x04,umask=0x03", "event=0x04,umask=0x0c", "event=0x00,umask=0x00"), 4, False)


def _icx(machine: Machine) -> list[Pmu]:
    # A kernel before 5.17: the aliases belong to Haswell, and are wrong on this processor.
    return _xeon(machine, 8, _cas("event=0x04,umask=0x03", "event=0x04,umask=0x0c", "event=0x00,umask=0x00"), 4, True)


def spr(machine: Machine) -> list[Pmu]:
    return _xeon(machine, 8, _cas("event=0x05,umask=0xcf", "event=0x05,umask=0xf0", "event=0x01,umask=0x00"), 6, True)


def _gnr(machine: Machine) -> list[Pmu]:
    # A kernel before commit 6a8a48644c4b: the aliases count one scheduler of two.
    return _xeon(machine, 12, _cas("event=0x05,umask=0xcf", "event=0x05,umask=0xf0", "event=0x01,umask=0x00"), 6, True)


def _hybrid(machine: Machine) -> list[Pmu]:
    types = _Types()
    core = Pmu("cpu_core", 4, _CPU_INTEL, _CPU_INTEL_EVENTS, "0-7\n", "cpus")
    atom = Pmu("cpu_atom", types(), _CPU_INTEL, _CPU_INTEL_EVENTS, f"8-{machine.cpus - 1}\n", "cpus")
    return [*_own(core, True, types), atom]


def _epyc(machine: Machine, fabric: Mapping[str, str], controllers: int) -> list[Pmu]:
    types = _Types()
    pmus = _own(Pmu("cpu", 4, _CPU_AMD, _CPU_AMD_EVENTS), True, types)
    pmus.append(Pmu("amd_df", types(), fabric, {}, machine.first_cpus + "\n"))
    umc = {"event": "config:0-7\n", "rdwrmask": "config:8-9\n"}
    for package in range(machine.packages if controllers else 0):
        mask = f"{machine.cpus_of(package)[0]}\n"
        pmus += [Pmu(f"amd_umc_{package * controllers + i}", types(), umc, {}, mask) for i in range(controllers)]
    return pmus


_DF = {"event": "config:0-7,32-35,59-60\n", "umask": "config:8-15\n"}
_DF_V2 = {"event": "config:0-7,32-37\n", "umask": "config:8-15,24-27\n"}


def _rome(machine: Machine) -> list[Pmu]:
    return _epyc(machine, _DF, 0)


def _genoa(machine: Machine) -> list[Pmu]:
    return _epyc(machine, _DF_V2, 12)


def _armv8(machine: Machine) -> Pmu:
    formats = {"event": "config:0-15\n", "long": "config1:0\n", "rdpmc": "config1:1\n"}
    return Pmu("armv8_pmuv3_0", 8, formats, _ARMV8_EVENTS, list_text(range(machine.cpus)) + "\n", "cpus")


def _arm_types() -> _Types:
    types = _Types()
    types()  # the first number belongs to the cores
    return types


def _altra(machine: Machine) -> list[Pmu]:
    types = _arm_types()
    pmus = _own(_armv8(machine), False, types)
    cmn = {
        "type": "config:0-15\n",
        "eventid": "config:16-26\n",
        "occupid": "config:27-30\n",
        "bynodeid": "config:31\n",
        "nodeid": "config:32-47\n",
    }
    hnf = {
        "cache_miss": 0x01,
        "slc_sf_cache_access": 0x02,
        "pocq_reqs_recvd": 0x05,
        "mc_retries": 0x0C,
        "mc_reqs": 0x0D,
    }
    rnid = {"rxdat_flits": 0x04, "txdat_flits": 0x05}
    events = {"dtc_cycles": "type=0x3\n"}
    events |= {f"hnf_{name}": f"type=0x5,eventid=0x{number:x}\n" for name, number in hnf.items()}
    events |= {f"rnid_{name}": f"type=0xa,eventid=0x{number:x}\n" for name, number in rnid.items()}
    dmc = {
        "mask": "config:0-44\n",
        "match": "config1:0-44\n",
        "invert": "config2:0\n\n",
        "incr": "config2:1-2\n",
        "event": "config2:3-8\n",
        "clkdiv2": "config2:9\n\n",
    }
    dmc_events = {
        "clkdiv2_cycle_count": "event=0x0,clkdiv2=0x1\n",
        "clkdiv2_rdwr": "event=0x12,clkdiv2=0x1\n",
        "clk_cycle_count": "event=0x0,clkdiv2=0x0\n",
    }
    for package in range(machine.packages):
        mask = f"{machine.cpus_of(package)[0]}\n"
        pmus.append(Pmu(f"arm_cmn_{package}", types(), cmn, events, mask))
        pmus += [
            Pmu(f"arm_dmc620_{0x10008C000 + package * 0x400000000000 + i * 0x4000000:x}", types(), dmc, dmc_events)
            for i in range(8)
        ]
    return pmus


def _grace(machine: Machine) -> list[Pmu]:
    types = _arm_types()
    pmus = _own(_armv8(machine), False, types)
    scf = {
        "cmem_rd_data": 0x1A5,
        "cmem_rd_access": 0x1A6,
        "cmem_wr_total_bytes": 0x1DB,
        "remote_socket_rd_data": 0x1A2,
        "remote_socket_wr_total_bytes": 0x1A1,
        "bus_cycles": 0x1D,
    }
    mcf = {
        "rd_bytes_loc": 0,
        "rd_bytes_rem": 1,
        "wr_bytes_loc": 2,
        "wr_bytes_rem": 3,
        "total_bytes_loc": 4,
        "total_bytes_rem": 5,
    }
    for package in range(machine.packages):
        cpus = machine.cpus_of(package)
        kinds: tuple[tuple[str, dict[str, int], dict[str, str]], ...] = (
            ("scf", scf, {}),
            ("pcie", mcf, {"root_port": "config1:0-9\n"}),
            ("nvlink_c2c0", mcf, {"port": "config1:0-1\n"}),
            ("cnvlink", mcf, {"rem_socket": "config1:0-3\n"}),
        )
        for kind, events, files in kinds:
            texts = {name: f"event=0x{number:x}\n" for name, number in events.items()}
            texts["cycles"] = "event=0x100000000\n"
            pmus.append(
                Pmu(
                    f"nvidia_{kind}_pmu_{package}",
                    types(),
                    {"event": "config:0-32\n", **files},
                    texts,
                    f"{cpus[0]}\n",
                    files={"associated_cpus": list_text(cpus) + "\n"},
                )
            )
    return pmus


def _kunpeng(machine: Machine) -> list[Pmu]:
    types = _arm_types()
    pmus = _own(_armv8(machine), False, types)
    names = ("flux_wr", "flux_rd", "flux_wcmd", "flux_rcmd", "pre_cmd", "act_cmd", "rnk_chg", "rw_chg")
    events = {name: f"config=0x{number:x}\n" for number, name in enumerate(names)}
    for package in range(machine.packages):
        mask = f"{machine.cpus_of(package)[0]}\n"
        for die in (1, 3):
            pmus += [
                Pmu(f"hisi_sccl{die + 4 * package}_ddrc{i}", types(), {"event": "config:0-4\n"}, events, mask)
                for i in range(4)
            ]
    return pmus


def _dsu(machine: Machine) -> list[Pmu]:
    types = _arm_types()
    names = {
        "cycles": 0x11,
        "bus_access": 0x19,
        "memory_error": 0x1A,
        "bus_cycles": 0x1D,
        "l3d_cache_allocate": 0x29,
        "l3d_cache_refill": 0x2A,
        "l3d_cache": 0x2B,
        "l3d_cache_wb": 0x2C,
    }
    events = {name: f"event=0x{number:x}\n" for name, number in names.items()}
    all_cpus = list_text(range(machine.cpus)) + "\n"
    dsu = Pmu("arm_dsu_0", types(), {"event": "config:0-31\n"}, events, "0\n", files={"associated_cpus": all_cpus})
    return [*_own(_armv8(machine), False, types), dsu]


PMUS: dict[str, Callable[[Machine], list[Pmu]]] = {
    "intel-hsx-2s": _hsx,
    "intel-bdx-2s": _hsx,
    "intel-skx-4s": _skx,
    "intel-icx-2s": _icx,
    "intel-spr-2s": spr,
    "intel-spr-8s": spr,
    "intel-gnr-2s": _gnr,
    "intel-hybrid": _hybrid,
    "amd-rome-2s": _rome,
    "amd-genoa-2s": _genoa,
    "amd-turin-2s": _genoa,
    "ampere-altra-2s": _altra,
    "nvidia-grace-2": _grace,
    "kunpeng-920-2s": _kunpeng,
    "arm-dsu": _dsu,
}
