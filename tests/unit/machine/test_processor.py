"""No CPU represents the others: facts that differ between CPUs are reported for each group of CPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from meshmark.machine.absence import is_absent
from meshmark.machine.boot import comparable_facts
from meshmark.machine.facts import recorded_facts

CPU = "sys/devices/system/cpu"
BIG_LITTLE = {
    f"{CPU}/cpu{cpu}/cpufreq/{name}": value
    for cpu in range(6)
    for name, value in {
        "cpuinfo_max_freq": "1512000" if cpu < 4 else "2016000",
        "cpuinfo_min_freq": "408000",
        "scaling_governor": "performance" if cpu < 4 else "schedutil",
        "scaling_driver": "cpufreq-dt",
    }.items()
}


def facts(files: Mapping[str, str]) -> Any:
    return json.loads(json.dumps(recorded_facts({name: text.encode() for name, text in files.items()})))


def test_sections_without_an_empty_line_between_them_are_of_different_cpus() -> None:
    text = "processor\t: 0\nmodel name\t: A\nmicrocode\t: 0x1\nprocessor\t: 1\nmodel name\t: A\nmicrocode\t: 0x2\n"
    assert facts({"proc/cpuinfo": text})["cpu"]["microcode"] == ["0x1", "0x2"]


def test_the_clocks_of_unlike_cores_are_reported_for_each_group_of_cpus() -> None:
    settings = facts(BIG_LITTLE)["settings"]
    assert settings["frequency_max_hz"] == [1_512_000_000, 2_016_000_000]
    assert settings["frequency_min_hz"] == 408_000_000
    assert settings["governor"] == ["performance", "schedutil"]
    assert [(g["cpus"], g["max_hz"], g["governor"]) for g in settings["clocks"]] == [
        ([0, 1, 2, 3], 1_512_000_000, "performance"),
        ([4, 5], 2_016_000_000, "schedutil"),
    ]


def test_policies_without_links_from_their_cpus_are_read() -> None:
    files = {
        f"{CPU}/cpufreq/policy0/affected_cpus": "0 1",
        f"{CPU}/cpufreq/policy0/cpuinfo_max_freq": "1000000",
        f"{CPU}/cpufreq/policy8/affected_cpus": "8 9",
        f"{CPU}/cpufreq/policy8/cpuinfo_max_freq": "3000000",
    }
    settings = facts(files)["settings"]
    assert [(g["cpus"], g["max_hz"]) for g in settings["clocks"]] == [([0, 1], 10**9), ([8, 9], 3 * 10**9)]


def test_the_first_cpu_need_not_have_a_clock() -> None:
    settings = facts({f"{CPU}/cpu7/cpufreq/cpuinfo_max_freq": "2000000"})["settings"]
    assert settings["frequency_max_hz"] == 2 * 10**9
    assert is_absent(settings["frequency_min_hz"]) and is_absent(settings["clocks"][0]["base_hz"])


def test_a_base_clock_that_differs_is_a_list() -> None:
    files = {f"{CPU}/cpu{n}/cpufreq/base_frequency": f"{rate}" for n, rate in ((0, 2_100_000), (1, 1_500_000))}
    assert facts(files)["cpu"]["claimed_hz"] == [1_500_000_000, 2_100_000_000]


@pytest.mark.parametrize(
    ("files", "boost"),
    [
        ({f"{CPU}/cpufreq/boost": "1"}, True),
        ({f"{CPU}/intel_pstate/no_turbo": "1"}, False),
        ({f"{CPU}/cpu0/cpufreq/boost": "1", f"{CPU}/cpu1/cpufreq/boost": "0"}, [False, True]),
        ({f"{CPU}/cpufreq/boost": "1", f"{CPU}/cpu0/cpufreq/boost": "0"}, False),
        ({f"{CPU}/cpufreq/boost": "0", f"{CPU}/cpu0/cpufreq/boost": "1"}, False),
    ],
)
def test_boost_is_known_for_all_cpus(files: dict[str, str], boost: object) -> None:
    assert facts(files)["settings"]["boost"] == boost


def test_processors_of_several_models_are_all_named_and_only_common_instruction_sets_are_reported() -> None:
    little = "processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd05\nCPU revision : 0\n"
    big = "processor : 1\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU part : 0xd41\nCPU revision : 1\n"
    machine_facts = facts({"proc/cpuinfo": f"{little}\n{big}\nHardware : board\n"})
    assert machine_facts["cpu"]["vendor"] == "0x41"
    assert machine_facts["cpu"]["model_number"] == ["0xd05", "0xd41"]
    assert machine_facts["cpu"]["stepping"] == ["0", "1"]
    assert machine_facts["cpu"]["isa"] == ["asimd", "fp"]


def test_a_microcode_that_differs_is_part_of_what_runs_are_compared_by() -> None:
    text = "\n\n".join(f"processor : {n}\nmodel name : X\nmicrocode : 0x{n + 1}" for n in range(2))
    assert comparable_facts(facts({"proc/cpuinfo": text}))["microcode"] == "0x1,0x2"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor : 0\ncpu : POWER9\nprocessor : 1\ncpu : POWER9\n\nplatform : PowerNV\nmachine : x", "POWER9"),
        ("vendor_id : IBM/S390\n# processors : 2\nprocessor 0: version = FF\nprocessor 1: version = FF", None),
    ],
)
def test_other_forms_of_cpuinfo_are_read(text: str, model: str | None) -> None:
    cpu = facts({"proc/cpuinfo": text})["cpu"]
    assert cpu["model"] == model if model else is_absent(cpu["model"]) and cpu["vendor"] == "IBM/S390"


@pytest.mark.parametrize(
    ("name", "hertz"),
    [("X @ 2.40GHz", 2_400_000_000), ("X @ 900 MHz", 900_000_000), (f"X @ {'9' * 400}GHz", None), ("X @ . GHz", None)],
)
def test_the_base_clock_in_the_name_of_a_model_is_read_if_it_is_one(name: str, hertz: int | None) -> None:
    claimed = facts({"proc/cpuinfo": f"processor : 0\nmodel name : {name}\n"})["cpu"]["claimed_hz"]
    assert claimed == hertz if hertz else is_absent(claimed)
