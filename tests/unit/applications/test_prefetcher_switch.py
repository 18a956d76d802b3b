"""Tests of prefetchers as a dimension: registers are written, always restored, and invalid requests are refused."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshmark.applications.application import parse_application
from meshmark.applications.attempt import attempt
from meshmark.applications.configuration import Configuration, Folders, configurations
from meshmark.applications.effects.prefetcher_effect import prefetcher_effects
from meshmark.applications.resources import machine_limits, prefetcher_switch
from meshmark.applications.resources.machine_limits import check_limits, limited
from meshmark.applications.single import single
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.statistics.pairs import MeritUnit
from support.limited_runs import wait_for_each_other
from support.made_caches import machine
from support.made_registers import read_registers, write_registers
from support.paths import ROOT
from support.waiting import until

INTEL, AMD = 0x1A4, 0xC0000108
OTHER_BITS = 0x8000_0000_0000_2510  # not bits of prefetchers; one byte is a % to printf
OURS = sorted(os.sched_getaffinity(0))
NOT_OURS = 4095
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return a function that simulates the registers of an Intel or AMD processor.

    They belong to the CPUs of this process and to one other CPU.
    """

    def make(number: int, *values: int) -> Path:
        devices = tmp_path / "cpu"
        value_by_cpu = {cpu: values[n % len(values)] for n, cpu in enumerate(OURS)}
        write_registers(devices, number, {**value_by_cpu, NOT_OURS: OTHER_BITS})
        vendor = "GenuineIntel" if number == INTEL else "AuthenticAMD"
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
        for module in (prefetcher_switch, machine_limits):
            monkeypatch.setattr(module, "DEVICES", devices)
        monkeypatch.setattr(prefetcher_switch, "CPUINFO", tmp_path / "cpuinfo")
        return devices

    return make


def ours(devices: Path, number: int) -> set[int]:
    registers_by_cpu = read_registers(devices, number)
    assert registers_by_cpu.pop(NOT_OURS) == OTHER_BITS, "the CPU is not ours"
    return set(registers_by_cpu.values())


@pytest.mark.parametrize(("number", "bits"), [(INTEL, 0b1111), (AMD, 0b101111)])
def test_all_prefetchers_are_switched_and_all_bits_restored(made: Made, number: int, bits: int) -> None:
    initial_bits = OTHER_BITS | 0b0010
    devices = made(number, initial_bits)
    with limited({"prefetchers": "off"}, machine) as tasks:
        assert tasks is None and ours(devices, number) == {OTHER_BITS | bits}
    assert ours(devices, number) == {initial_bits}
    with limited({"prefetchers": "on"}, machine):
        assert ours(devices, number) == {OTHER_BITS}
    assert ours(devices, number) == {initial_bits}
    with pytest.raises(ZeroDivisionError), limited({"prefetchers": "off", "threads": "2"}, machine):
        raise ZeroDivisionError
    assert ours(devices, number) == {initial_bits}


def test_cpus_get_back_what_each_of_them_had(made: Made) -> None:
    devices = made(INTEL, 0b0001, 0b1000)
    initial_registers = read_registers(devices, INTEL)
    with limited({"prefetchers": "off"}, machine):
        assert ours(devices, INTEL) == {0b1111}
    assert read_registers(devices, INTEL) == initial_registers


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_registers_are_restored_if_the_process_is_killed(made: Made, how: signal.Signals) -> None:
    devices = made(AMD, OTHER_BITS)
    script = f"""
import signal
from pathlib import Path
from meshmark.applications.resources import machine_limits, prefetcher_switch
from support.limited_runs import wait_for_each_other
from support.made_caches import machine
machine_limits.DEVICES = prefetcher_switch.DEVICES = Path({str(devices)!r})
prefetcher_switch.CPUINFO = Path({str(devices.parent / "cpuinfo")!r})
with machine_limits.limited({{"prefetchers": "off"}}, machine):
    print("switched", flush=True)
    signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"switched\n"
        assert ours(devices, AMD) == {OTHER_BITS | 0b101111}
        os.killpg(child.pid, how)
    assert until(lambda: ours(devices, AMD) == {OTHER_BITS})


def test_runs_that_switch_them_wait_for_each_other(made: Made) -> None:
    devices = made(INTEL, 0)

    def restored() -> None:
        assert ours(devices, INTEL) == {0}

    wait_for_each_other("prefetchers", "off", "on", restored)


def test_a_run_has_them_off(made: Made, tmp_path: Path) -> None:
    devices = made(INTEL, 0)
    text = f"""
[application]
command = ["cp", "{devices}/{OURS[0]}/msr", "{tmp_path}/seen-{{prefetchers}}"]
[dimensions]
prefetchers = ["on", "off"]
"""
    app = parse_application(text, "a", tmp_path)
    for configuration in configurations(app):
        outcome = attempt(app, configuration, Folders(tmp_path / "run"), 1)
        assert outcome.value is not None, outcome.reason
    bits = {state: (tmp_path / f"seen-{state}").read_bytes()[INTEL] for state in ("on", "off")}
    assert bits == {"on": 0, "off": 0b1111} and ours(devices, INTEL) == {0}


def refusing(what: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a system call on a register fail with the error `number`, or have no effect if `number` is 0."""
    call = getattr(os, what)

    def refuse(where: object, *args: object) -> object:
        path = Path(f"/proc/self/fd/{where}").readlink() if isinstance(where, int) else where
        if not str(path).endswith("/msr"):
            return call(where, *args)
        if number:
            raise OSError(number, os.strerror(number))
        return 8

    monkeypatch.setattr(os, what, refuse)


@pytest.mark.parametrize(
    ("what", "number", "message", "hint"),
    [
        ("open", errno.EACCES, r"may not be opened: Permission denied", "run as root"),
        ("open", errno.EPERM, r"may not be opened: Operation not permitted", "CAP_SYS_RAWIO"),
        ("open", errno.ENOENT, r"found no registers in .*/msr", "modprobe msr"),
        ("open", errno.EMFILE, r"cannot read .*: Too many open files", ""),
        ("pread", errno.EIO, r"cannot read register 1A4h in .*: this processor does not have it", "virtual machine"),
        ("pwrite", errno.EIO, r"cannot write register 1A4h", "virtual machine"),
        ("pwrite", errno.EPERM, r"the kernel refuses to write .*/msr", "lockdown"),
        ("pwrite", 0, r"CPUs .* ignore what is written into register 1A4h", "rather than in a virtual machine"),
    ],
)
def test_a_machine_that_cannot_switch_them_says_so(
    made: Made, monkeypatch: pytest.MonkeyPatch, what: str, number: int, message: str, hint: str
) -> None:
    devices = made(INTEL, 0)
    with monkeypatch.context() as patch:
        refusing(what, number, patch)
        with pytest.raises(AbsentError, match=r"dimensions.prefetchers: .*" + message) as error:
            check_limits({"prefetchers": ["on", "off"]}, machine)
    assert hint in error.value.hint and ours(devices, INTEL) == {0}
    check_limits({"prefetchers": ["on", "off"]}, machine)
    assert ours(devices, INTEL) == {0}


def test_a_register_that_is_not_there_is_absent(made: Made, tmp_path: Path) -> None:
    devices = made(INTEL, 0)
    device = devices / str(OURS[-1]) / "msr"
    device.write_bytes(b"\0" * INTEL)  # the file ends before the register
    with pytest.raises(AbsentError, match="cannot read register 1A4h"):
        check_limits({"prefetchers": ["off"]}, machine)
    device.unlink()
    with pytest.raises(AbsentError, match=r"found no registers in .*/msr"):
        check_limits({"prefetchers": ["off"]}, machine)
    for text, message in (("vendor_id : Else\n", "of Else; registers"), ("CPU part : 0xd0c\n", "an unknown vendor")):
        (tmp_path / "cpuinfo").write_text(text)
        with pytest.raises(AbsentError, match=message):
            check_limits({"prefetchers": ["off"]}, machine)


def test_what_else_changes_them_during_a_run_is_noticed(made: Made) -> None:
    devices = made(INTEL, 0b0001)
    with (
        pytest.raises(MeshmarkError, match=r"something else changed register 1A4h of CPUs"),
        limited({"prefetchers": "off"}, machine),
        (devices / str(OURS[0]) / "msr").open("r+b") as file,
    ):
        os.pwrite(file.fileno(), bytes(8), INTEL)
    assert ours(devices, INTEL) == {0b0001}


def test_registers_that_cannot_be_restored_are_an_error(made: Made) -> None:
    devices = made(INTEL, 0)
    device = devices / str(OURS[0]) / "msr"
    message = rf"cannot undo a limit: .*{device}"
    with pytest.raises(MeshmarkError, match=message), limited({"prefetchers": "off"}, machine):
        device.unlink()
    assert not device.exists(), "no file of that name is made"


@pytest.mark.parametrize("value", ["", "none", "all", "On", "on=1"])
def test_they_are_on_or_off(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r"dimensions.prefetchers: found '.*'; allowed: on, off"):
        parse_application(f'[application]\ncommand = "a"\n[dimensions]\nprefetchers = ["{value}"]\n', "a", tmp_path)


def test_commands_that_leave_the_machine_alone_refuse_them(tmp_path: Path) -> None:
    app = parse_application('[application]\ncommand = "true"\n[dimensions]\nprefetchers = "on"\n', "a", tmp_path)
    with pytest.raises(UsageError, match=r"dimensions.prefetchers: found on, which is not allowed here"):
        single(app, tmp_path / "run", print)


def test_the_effect_is_that_of_off_over_on_with_all_else_equal() -> None:
    combinations = [Configuration({"threads": t, "prefetchers": p}) for t in ("1", "2") for p in ("on", "off")]
    elapsed = dict(zip((case.label for case in combinations), (1.0, 1.3, 2.0, 2.0), strict=True))
    values = {
        label: {r: time * (1 + 0.002 * ((7 * r + n) % 11 - 5) / 5) for r in range(1, 13)}
        for n, (label, time) in enumerate(elapsed.items())
    }
    times, rates = MeritUnit("lower", "s"), MeritUnit("higher", "op/s")
    case, other_case = prefetcher_effects(values, combinations, times, 0.02, 0.95)
    assert (case.others, other_case.others) == ("threads=1", "threads=2")
    assert case.text.startswith("off against on: slower: 0.76") and case.interval and case.interval[0] > 1.25
    assert other_case.text.startswith("off against on: equal within the margin")
    assert prefetcher_effects(values, combinations, rates, 0.02, 0.95)[0].text.startswith("off against on: faster: 1.3")
    assert prefetcher_effects(values, combinations[:1], times, 0.02, 0.95) == []
    short = {label: dict(list(samples.items())[:2]) for label, samples in values.items()}
    assert prefetcher_effects(short, combinations, times, 0.02, 0.95)[0].text.startswith(
        "off against on: too few rounds"
    )
