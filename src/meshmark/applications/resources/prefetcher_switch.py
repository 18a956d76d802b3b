"""Switches the hardware prefetchers of CPUs on or off for a run, by the registers of `machine.prefetchers`.

Source: msr(4), the devices of model-specific registers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from meshmark.applications.resources.undoing import register_step, undone
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.machine.prefetchers import REGISTERS, Register
from meshmark.machine.tree import format_list

DEVICES: Final = Path("/dev/cpu")
CPUINFO: Final = Path("/proc/cpuinfo")
SETTINGS: Final = ("on", "off")
_AT: Final = "dimensions.prefetchers"


@contextlib.contextmanager
def switched(setting: str, lock: int | None) -> Iterator[None]:
    """Switch all prefetchers that the registers control, for all CPUs that this process may use, and then restore them.

    Args:
        setting: `on` or `off`.
        lock: Lock that is held until the registers are restored, even if this process is killed.

    Raises:
        AbsentError: This machine cannot switch prefetchers.
        MeshmarkError: Something else changed the registers meanwhile, or they cannot be restored.
    """
    register = _register()
    original_values = {cpu: _read(cpu, register) for cpu in sorted(os.sched_getaffinity(0))}
    target_values = {
        cpu: value | register.all_off if setting == "off" else value & ~register.all_off
        for cpu, value in original_values.items()
    }
    changed_cpus = [cpu for cpu in original_values if target_values[cpu] != original_values[cpu]]
    with undone([register_step(_device(cpu), register.number, original_values[cpu]) for cpu in changed_cpus], lock):
        for cpu, value in target_values.items():  # also without a change, which shows that writing is permitted
            _write(cpu, register, value)
        if cpus := _different(register, target_values):
            raise AbsentError(
                f"{_AT}: CPUs {format_list(cpus)} ignore what is written into register {register.number:X}h",
                "on the host rather than in a virtual machine",
            )
        yield
        if cpus := _different(register, target_values):
            raise MeshmarkError(
                f"{_AT}: something else changed register {register.number:X}h of CPUs {format_list(cpus)} in a run"
            )


def _register() -> Register:
    """Return the register of this processor."""
    try:
        match = re.search(r"^vendor_id\s*:\s*(\S+)", CPUINFO.read_text(encoding="utf-8", errors="replace"), re.M)
    except OSError as error:
        raise AbsentError(f"{_AT}: cannot read {CPUINFO}: {error.strerror}") from error
    vendor = match[1] if match else "an unknown vendor"
    if vendor not in REGISTERS:
        raise AbsentError(
            f"{_AT}: found a processor of {vendor}; registers are known for {' and '.join(sorted(REGISTERS))}"
        )
    return REGISTERS[vendor]


def _device(cpu: int) -> Path:
    return DEVICES / str(cpu) / "msr"


def _read(cpu: int, register: Register) -> int:
    with _opened(cpu, os.O_RDONLY, register, "read") as handle:
        data = os.pread(handle, 8, register.number)
        if len(data) != 8:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    return int.from_bytes(data, "little")


def _write(cpu: int, register: Register, value: int) -> None:
    with _opened(cpu, os.O_WRONLY, register, "write") as handle:
        os.pwrite(handle, value.to_bytes(8, "little"), register.number)


def _different(register: Register, wanted: dict[int, int]) -> list[int]:
    """Return the CPUs whose register does not switch the prefetchers as requested."""
    return [cpu for cpu, value in wanted.items() if (_read(cpu, register) ^ value) & register.all_off]


@contextlib.contextmanager
def _opened(cpu: int, how: int, register: Register, what: str) -> Iterator[int]:
    """Open the device of a CPU and yield its handle. Errors state how the user can solve them."""
    device, handle = _device(cpu), -1
    try:
        handle = os.open(device, how | os.O_CLOEXEC)
        yield handle
    except OSError as error:
        raise _absent(error, device, register, what, opened=handle >= 0) from error
    finally:
        if handle >= 0:
            os.close(handle)


def _absent(error: OSError, device: Path, register: Register, what: str, *, opened: bool) -> AbsentError:
    is_permission_error = error.errno in (errno.EPERM, errno.EACCES)
    if is_permission_error and opened:
        return AbsentError(
            f"{_AT}: the kernel refuses to {what} {device}: {error.strerror}",
            "boot without lockdown (Secure Boot) and with msr.allow_writes=on",
        )
    if is_permission_error:
        return AbsentError(f"{_AT}: {device} may not be opened: {error.strerror}", "run as root, with CAP_SYS_RAWIO")
    if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return AbsentError(f"{_AT}: found no registers in {device}", "modprobe msr, as root")
    if error.errno == errno.EIO:
        return AbsentError(
            f"{_AT}: cannot {what} register {register.number:X}h in {device}: this processor does not have it or its "
            f"bits, or a hypervisor hides it",
            "on the host rather than in a virtual machine, if this is one",
        )
    return AbsentError(f"{_AT}: cannot {what} {device}: {error.strerror}")
