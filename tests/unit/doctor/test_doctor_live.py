"""On the running system, the answers of the kernel override its files, and only existing installers are suggested."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from meshmark.doctor.counters import open_counter
from meshmark.doctor.finding import HostFinding
from meshmark.doctor.host import examine
from meshmark.machine.tree import FileTree
from support.made_host import AS_ROOT, AS_USER, looked, made, of


def live(monkeypatch: pytest.MonkeyPatch, root: Path, answer: Callable[..., int], **programs: str) -> list[HostFinding]:
    """Return the findings on a simulated machine that replaces the running one."""
    monkeypatch.setattr(FileTree, "live", property(lambda _: True))
    return examine(root, which=programs.get, try_counter=answer)


@pytest.mark.parametrize(
    ("paranoid", "status", "error", "judged", "said"),
    [
        ("2", AS_USER, 0, "ok", "can be opened"),
        ("0", AS_USER, errno.EPERM, "hidden", "a seccomp filter"),
        ("2", AS_USER, errno.EACCES, "hidden", "without CAP_PERFMON"),
        ("2", AS_ROOT, errno.EPERM, "hidden", "a seccomp filter"),
        ("2", AS_ROOT, errno.ENOSYS, "hidden", "no perf_event_open"),
        ("x", AS_USER, errno.EACCES, "hidden", "perf_event_paranoid unknown"),
    ],
)
def test_the_answer_of_the_kernel_decides_about_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paranoid: str, status: str, error: int, judged: str, said: str
) -> None:
    root = made(tmp_path, **{"proc/sys/kernel/perf_event_paranoid": paranoid, "proc/self/status": status})
    finding = of(live(monkeypatch, root, lambda *_: error), "system-wide counters")
    assert finding.verdict == judged and said in finding.value


def test_cycles_that_cannot_be_counted_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = lambda kind, *_: errno.ENOENT if kind == 0 else 0  # noqa: E731
    finding = of(live(monkeypatch, made(tmp_path), answer), "counters of the cores")
    assert finding.verdict == "hidden" and "ENOENT" in finding.value
    refuse = lambda kind, *_: errno.EACCES if kind == 0 else 0  # noqa: E731
    assert of(live(monkeypatch, made(tmp_path), refuse), "counters of the cores").verdict == "ok"


def test_programs_are_installed_by_the_installer_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"fio": "/usr/bin/fio", "apt-get": "/usr/bin/apt-get"}
    findings = live(monkeypatch, made(tmp_path), lambda *_: 0, **programs)
    assert of(findings, "fio").verdict == "ok" and of(findings, "fio").value == "/usr/bin/fio"
    assert of(findings, "mpirun").command == "sudo apt-get install openmpi-bin"
    findings = live(monkeypatch, made(tmp_path), lambda *_: 0, dnf="/usr/bin/dnf")
    assert of(findings, "mpirun").command == "sudo dnf install openmpi"
    assert of(live(monkeypatch, made(tmp_path), lambda *_: 0), "numactl").command == ""


def test_a_setting_that_this_kernel_lacks_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(tmp_path, **{"proc/sys/kernel/numa_balancing": None})
    assert of(looked(root), "NUMA balancing").verdict == "unknown"
    assert of(live(monkeypatch, root, lambda *_: 0), "NUMA balancing").value == "not in this kernel"
    made(tmp_path, **{"proc/sys/kernel/numa_balancing": "cannot be read as a number"})
    assert of(live(monkeypatch, root, lambda *_: 0), "NUMA balancing").verdict == "unknown"


def test_a_counter_of_this_system_is_asked_for_without_harm() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    answers = {open_counter(1, 0, 0, -1), open_counter(0, 0, 0, -1), open_counter(1, 0, -1, 0)}
    assert all(0 <= a < 4096 for a in answers)
    assert open_counter(10**6, 0, 0, -1) != 0  # no such kind exists
    assert len(list(Path("/proc/self/fd").iterdir())) == before
