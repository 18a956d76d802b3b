"""What a machine says of itself: processor, memory, firmware, settings.

`host_facts()` is one JSON-able dictionary. Claims, not measurements: a view shows them beside what
was measured. **A missing fact is `{"absent": "the reason"}` in the place of its value**, never a
guess and never a zero; ask `is_absent(value)` before use.

    schema              1
    machine             {"id", "name", "hash"}      (see `machine.identity`)
    cpu                 {"vendor", "model", "family", "model_number", "stepping", "microcode",
                         "isa": [flags that matter, e.g. "avx2", "avx512f"],
                         "claimed_hz": base clock in the model's name or the firmware's, Hz}
    topology            `Topology.to_dict()`, see there (packages, nodes, caches, cores, cpus, allowed_cpus,
                        distances, doubts: list of str)
    caches              [{"level": 1, "kind": "data" | "instruction" | "unified", "size_bytes", "line_bytes",
                         "ways", "shared_by": CPUs that share one, "count": how many there are}]
    memory              {"total_bytes": of the kernel, "nodes_bytes": sum of the nodes' own claims,
                         "safe_bytes": the smaller of the two, "available_bytes",
                         "swap_bytes", "dimms": [{"slot", "bank", "size_bytes", "kind": "DDR5", "rate_t_per_s":
                         configured transfers a second, "max_rate_t_per_s", "width_bits", "part"}],
                         "channels": populated channels (an int), "channels_rule": how they were counted,
                         "rate_t_per_s", "peak_bytes_per_s": channels × width × rate}
    kernel              {"release", "version", "command_line"}
    pages               {"base_bytes", "thp": "madvise", "thp_defrag", "thp_shmem", "khugepaged_defrag",
                         "huge": [{"size_bytes", "total", "free", "reserved", "surplus",
                                   "nodes": {"0": {"total", "free"}}}]}
    settings            {"numa_balancing": int, "swappiness": int, "zone_reclaim": int, "overcommit": int,
                         "smt": "on" | "off" | "notsupported" …, "smt_active": bool, "governor": str or
                         list of str, "frequency_driver", "frequency_min_hz", "frequency_max_hz",
                         "boost": bool, "clocksource", "clocksources": [str], "realtime_share": 0…1,
                         "perf_event_paranoid": int, "isolated_cpus": [int], "nohz_full_cpus": [int]}
    mitigations         {"spectre_v2": "Mitigation: …", …}
    virtual             {"guest": bool, "hypervisor": str, "signs": [what tells]}
    firmware            {"bios_vendor", "bios_version", "bios_date", "system_vendor", "product",
                         "board_vendor", "board"}
    cgroup              {"version": 1 | 2, "path", "cpus": [int], "nodes": [int], "memory_limit_bytes",
                         "cpu_quota": CPUs' worth, a float}  (no limit = {"absent": "no limit is set"})
    load                {"1min", "5min", "15min", "running", "tasks"}

Sizes are in B, rates in Hz or transfers/s, bandwidth in B/s. Everything is read below `root`, so a
recorded tree stands in for a machine; only for `/` are the running process and the system asked too.
"""

from __future__ import annotations

from pathlib import Path


def is_absent(value: object) -> bool:
    """Whether a fact is missing: `{"absent": reason}`."""
    return isinstance(value, dict) and set(value) == {"absent"}


def host_facts(root: Path = Path("/")) -> dict[str, object]:
    """Facts of the machine whose /proc and /sys lie below `root`; the schema is this module's docstring."""
    return {"schema": 1}
