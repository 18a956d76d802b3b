"""Reads facts about the processor and its clocks, separately for each group of CPUs that are alike.

No CPU represents all CPUs: hybrid processors and big.LITTLE have cores of several models and clock rates, and a
governor can be set per CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from meshmark.machine.absence import absent
from meshmark.machine.tree import Files

CPU_FOLDER = "sys/devices/system/cpu"
_MAX_COMPLETE = 1_000_000  # characters; only the first MiB of a file is read, so longer text ends within a CPU
T = TypeVar("T", str, int)

_ISA = re.compile(
    r"sse2|sse4_[12]|ssse3|avx|avx2|fma|f16c|bmi[12]|avx512\w*|avx_vnni|amx_\w+|avx10\w*|"  # vectors
    r"clflush|clflushopt|clwb|cldemote|movdir\w+|prefetchw|3dnowprefetch|erms|fsrm|"  # memory
    r"rdtscp|constant_tsc|nonstop_tsc|tsc_reliable|tsc_known_freq|pdpe1gb|pse|la57|waitpkg|hypervisor|"
    r"fp|asimd\w*|sve\w*|sme[2_]?\w*(?<!smep)|atomics|lrcpc|dcpop"  # Arm
)


def single(values: Iterable[T | None]) -> T | list[T] | None:
    """Return the value that all CPUs have in common, or the sorted list of the different values.

    Args:
        values: Values of the CPUs. None means unknown and is left out.

    Returns:
        None if all values are unknown.
    """
    distinct_values = sorted({value for value in values if value is not None})
    return distinct_values[0] if len(distinct_values) == 1 else distinct_values or None


# ------------------------------------------------------------------ /proc/cpuinfo


def _described(tree: Files) -> list[dict[str, str]]:
    """Return the fields of each CPU in /proc/cpuinfo.

    Arm and s390 have fields outside the sections of CPUs. Such a field belongs to every CPU without a field of the
    same name.
    """
    cpus: list[dict[str, str]] = []
    common: dict[str, str] = {}
    text = tree.text("proc/cpuinfo") or ""
    for section in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        for line in section.splitlines():
            name, colon, value = line.partition(":")
            if not colon:
                continue
            if name.strip() == "processor" and "processor" in fields:  # a section without an empty line before it
                cpus.append(fields)
                fields = {}
            fields.setdefault(name.strip(), value.strip())
        if "processor" in fields:
            cpus.append(fields)
        else:
            common = fields | common
    if len(text) > _MAX_COMPLETE and len(cpus) > 1:
        cpus.pop()
    return [common | cpu for cpu in cpus] or ([common] if common else [])


def processor(tree: Files) -> dict[str, object]:
    """Return the part `cpu` of `host_facts`."""
    cpus = _described(tree)

    def field(*names: str) -> object:
        values = (next((cpu[n] for n in names if cpu.get(n)), None) for cpu in cpus)
        return single(values) or absent(f"/proc/cpuinfo has no {' or '.join(names)}")

    flags = [set((cpu.get("flags") or cpu.get("Features") or "").split()) for cpu in cpus]
    common = set.intersection(*flags) if flags else set()
    model = field("model name", "Model", "cpu model", "cpu")
    return {
        "vendor": field("vendor_id", "CPU implementer", "vendor"),
        "model": model,
        "family": field("cpu family", "CPU architecture"),
        "model_number": field("model", "CPU part"),
        "stepping": field("stepping", "CPU revision"),
        "microcode": field("microcode"),
        "isa": sorted({f for f in common if _ISA.fullmatch(f)}) or absent("/proc/cpuinfo contains no instruction sets"),
        "claimed_hz": _claimed(tree, model),
    }


def _claimed(tree: Files, model: object) -> object:
    names = model if isinstance(model, list) else [model]
    matches = [re.search(r"@ *([0-9]{1,5}(?:\.[0-9]{1,9})?) *([GM])Hz", str(name)) for name in names]
    rates = [round(float(m[1]) * (1e9 if m[2] == "G" else 1e6)) for m in matches if m]
    bases = single(rates) or single(group.base_hz for group in clocks(tree))
    return bases or absent("neither the model name nor the firmware contains a base clock")


# ------------------------------------------------------------------ clocks


@dataclass(frozen=True, slots=True)
class Clock:
    """The kernel's control of the clock of some CPUs; values that it does not report are None."""

    cpus: tuple[int, ...]
    governor: str | None
    driver: str | None
    min_hz: int | None
    max_hz: int | None
    base_hz: int | None
    boost: int | None  # boost setting of the policy, since Linux 6.11

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-compatible form, in which an unknown value is absent with a reason."""
        values = {
            "governor": self.governor,
            "driver": self.driver,
            "min_hz": self.min_hz,
            "max_hz": self.max_hz,
            "base_hz": self.base_hz,
            "boost": None if self.boost is None else self.boost == 1,
        }
        return {"cpus": list(self.cpus)} | {
            key: absent("not reported by the kernel") if value is None else value for key, value in values.items()
        }


def clocks(tree: Files) -> list[Clock]:
    """Return the clocks of all CPUs with a cpufreq policy; one entry per group of CPUs with the same values."""
    folders = {
        cpu: folder
        for cpu in tree.numbered(CPU_FOLDER, "cpu")
        if any(tree.names(folder := f"{CPU_FOLDER}/cpu{cpu}/cpufreq"))
    }
    for policy in tree.numbered(f"{CPU_FOLDER}/cpufreq", "policy"):  # recorded trees may lack the links to policies
        folder = f"{CPU_FOLDER}/cpufreq/policy{policy}"
        for word in (tree.text(f"{folder}/affected_cpus") or "").split():
            if re.fullmatch(r"[0-9]{1,5}", word):
                folders.setdefault(int(word), folder)
    groups: dict[Clock, list[int]] = {}
    for cpu, folder in sorted(folders.items()):
        groups.setdefault(_clock(tree, folder), []).append(cpu)
    return [replace(clock, cpus=tuple(cpus)) for clock, cpus in groups.items()]


def _clock(tree: Files, at: str) -> Clock:
    def hertz(name: str) -> int | None:
        value = tree.number(f"{at}/{name}")
        return value * 1000 if value is not None and value > 0 else None

    return Clock(
        (),
        tree.text(f"{at}/scaling_governor") or None,
        tree.text(f"{at}/scaling_driver") or None,
        hertz("cpuinfo_min_freq"),
        hertz("cpuinfo_max_freq"),
        hertz("base_frequency"),
        tree.number(f"{at}/boost"),
    )


def boost(tree: Files, groups: Sequence[Clock]) -> object:
    """Return whether the processor may exceed its base clock: true, false, or both if the CPUs differ."""
    switches: tuple[tuple[str, Callable[[int], bool]], ...] = (
        ("cpufreq/boost", lambda value: value == 1),
        ("intel_pstate/no_turbo", lambda value: value == 0),
    )
    global_state = next(
        (is_on(value) for name, is_on in switches if (value := tree.number(f"{CPU_FOLDER}/{name}")) is not None), None
    )
    policy_states = {group.boost == 1 for group in groups if group.boost is not None}
    if global_state is not False and policy_states:
        return policy_states == {True} if len(policy_states) == 1 else [False, True]
    if global_state is None:
        return absent("neither cpufreq/boost nor intel_pstate/no_turbo exists")
    return global_state
