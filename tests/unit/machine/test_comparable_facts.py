"""The facts that two hosts must have in common for their results to be compared."""

from __future__ import annotations

from meshmark.machine.absence import absent
from meshmark.machine.boot import comparable_facts

FACTS = {
    "cpu": {"model": "A", "microcode": ["0x1", "0x2"]},
    "firmware": {"bios_vendor": "V", "bios_version": "1.2", "bios_date": "2026"},
    "kernel": {"release": "6.1", "version": "#1", "options": "quiet"},
    "settings": {"governor": "performance", "boost": True, "smt": "on", "numa_balancing": 0, "prefetchers": "on"},
    "pages": {"thp": "madvise"},
    "virtual": {"hypervisor": "KVM"},
}


def test_each_fact_is_read_from_its_place() -> None:
    assert comparable_facts(FACTS) == {
        "cpu": "A",
        "microcode": "0x1,0x2",
        "firmware": "V 1.2 2026",
        "kernel": "6.1",
        "kernel_build": "#1",
        "kernel_options": "quiet",
        "governor": "performance",
        "boost": "True",
        "thp": "madvise",
        "smt": "on",
        "numa_balancing": "0",
        "hypervisor": "KVM",
        "prefetchers": "on",
    }


def test_unknown_facts_are_left_out() -> None:
    facts = {"cpu": {"model": absent("no file"), "microcode": []}, "kernel": absent("no file"), "firmware": {}}
    assert comparable_facts(facts) == {}
    assert comparable_facts({"firmware": {"bios_version": "1.2", "bios_date": absent("x")}}) == {"firmware": "1.2"}
