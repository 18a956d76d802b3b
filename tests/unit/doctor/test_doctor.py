"""The doctor as a whole: its findings are ordered, on recorded machines and any tree, and the command prints them."""

from __future__ import annotations

import json
import tarfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from meshmark.doctor.finding import ORDER
from support.cli import meshmark
from support.made_host import GOOD, looked, made, of
from support.paths import MACHINES

RECORDED = sorted(
    m["name"]
    for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
    if m["label"] == "recorded-in-guest"
)


def test_absent_metrics_of_the_sampler_are_reported_with_their_hint(tmp_path: Path) -> None:
    absences = [
        {"metric": "memory.busy", "why": "no counters", "hint": "do this"},
        {"metric": "link.busy", "why": "no counters", "hint": "do this"},
        {"metric": "io.busy:eth0", "why": "no speed"},
        {"metric": "power", "why": "none"},
        {"metric": "l3.total", "why": "none"},
    ]
    findings = [f for f in looked(made(tmp_path), absences) if f.name.startswith("sampler")]
    assert [(f.name, f.value, f.verdict, f.command) for f in findings] == [
        ("sampler: memory.busy, link.busy", "no counters", "hidden", "do this"),
        ("sampler: eth0", "no speed", "hidden", ""),
    ]


def test_the_worst_comes_first(tmp_path: Path) -> None:
    changes = {"proc/sys/kernel/numa_balancing": "1", "proc/sys/kernel/nmi_watchdog": "1", "proc/cpuinfo": None}
    ranks = [ORDER.index(f.verdict) for f in looked(made(tmp_path, **changes))]
    assert ranks == sorted(ranks) and ranks[0] == ORDER.index("spoils-measurements") and len(set(ranks)) == 4


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_machines_are_examined(tmp_path: Path, name: str) -> None:
    with tarfile.open(MACHINES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    findings = looked(tmp_path / "root")
    assert of(findings, "hypervisor").verdict == "spoils-measurements"
    assert of(findings, "clock source").verdict in {"ok", "spoils-measurements"}
    assert of(findings, "SMT").verdict == "ok"
    nodes = len(list((tmp_path / "root/sys/devices/system/node").glob("node[0-9]*")))
    assert of(findings, "nodes of this process").verdict in {"ok", "hidden"}
    balancing = of(findings, "NUMA balancing")
    recorded_names = (tmp_path / "root/proc/sys/kernel/numa_balancing").read_text().strip()
    spoils = recorded_names != "0" and nodes > 1
    assert balancing.verdict == ("spoils-measurements" if spoils else "ok")
    for f in findings:
        assert f.value and f.effect and "\n" not in f.value + f.effect + f.command


PIECES = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "2\n3",
        "max",
        "max 100000",
        "-5 0",
        "99999999999999999999999",
        "0x1",
        "[never]",
        "CapEff:\tzz",
        "CapEff: ffffffffffffffffffff",
        "Uid:",
        "Max open files x y",
        "0-",
        "9-1",
        "flags : hypervisor",
        "\0",
        "some avg10=",
        "0::/../..",
        "0::/a/b",
        "1:cpu:/x",
        "\x1b[2J",
        "é",
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.lists(PIECES | st.text(max_size=15), max_size=4), max_size=8))
@example({"sys/devices/system/clocksource/clocksource0/current_clocksource": ["\x1b"]})
def test_no_tree_causes_a_traceback(tmp_path_factory: pytest.TempPathFactory, files: dict[str, list[str]]) -> None:
    changes = {k: "\n".join(v).encode("utf-8", "replace").decode() for k, v in files.items()}
    for f in looked(made(tmp_path_factory.mktemp("tree"), **changes)):
        assert f.verdict in ORDER and f.value.isprintable() and f.command.isprintable() and f.value
        json.dumps(f.to_json())


def test_folders_in_place_of_files_cause_no_traceback(tmp_path: Path) -> None:
    for name in GOOD:
        (tmp_path / name).mkdir(parents=True)
    assert looked(tmp_path)


# ------------------------------------------------------------------ the command


def test_the_command_examines_this_machine() -> None:
    completed = meshmark("doctor", "--json")
    assert completed.returncode == 0, completed.stderr
    findings = [json.loads(line) for line in completed.stdout.splitlines()]
    assert {"name", "found", "judged", "why", "command"} == set(findings[0])
    assert len({f["name"] for f in findings}) == len(findings) > 20
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    assert next(f for f in findings if f["name"] == "clock source")["found"].startswith(clock)


def test_commands_are_printed_on_their_own_lines(tmp_path: Path) -> None:
    completed = meshmark(
        "doctor", "--root", str(made(tmp_path, **{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}))
    )
    assert completed.returncode == 0, completed.stderr
    expected = "    echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    assert expected in completed.stdout.splitlines()
    assert completed.stdout.splitlines()[1].startswith("spoils")
    assert "1 that affect measurements" in completed.stderr


def test_an_empty_tree_is_reported_in_one_line(tmp_path: Path) -> None:
    completed = meshmark("doctor", "--root", str(tmp_path))
    assert completed.returncode == 1
    assert (
        "nothing could be read" in completed.stderr and "Traceback" not in completed.stderr and completed.stdout == ""
    )
