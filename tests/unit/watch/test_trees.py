"""Definitions of events follow their format and match the simulated trees of the kernel, which are tested, too."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from machines.servers import MACHINES, NAMES, list_text
from machines.trees import make_tree, many
from meshmark.watch.live import LiveSampler
from support.paths import ROOT

EVENTS = ROOT / "native" / "watch" / "events"
FILES = sorted(EVENTS.glob("*.toml"))
UNITS = {"1", "B", "B/s", "s", "1/s", "Hz", "W"}

Table = dict[str, Any]

PMU: dict[str, tuple[type | tuple[type, ...], bool]] = {  # type, and whether it must be there
    "device": (str, True),
    "not": (str, False),
    "cpuid": (list, False),
    "component": (str, True),
    "label": (str, False),
    "source": (str, True),
    "event": (list, True),
    "metric": (list, True),
}
EVENT: dict[str, tuple[type | tuple[type, ...], bool]] = {
    "name": (str, True),
    "use": (str, False),
    "terms": (str, False),
    "scale": (float, False),
}
METRIC: dict[str, tuple[type | tuple[type, ...], bool]] = {
    "name": (str, True),
    "unit": (str, True),
    "what": (str, True),
    "of": (str, False),
    "sum": (dict, True),
    "over": (dict, False),
}


def definitions() -> list[tuple[str, Table]]:
    return [(f"{file.stem}-{i}", pmu) for file in FILES for i, pmu in enumerate(tomllib.loads(file.read_text())["pmu"])]


DEFINITIONS = [pytest.param(pmu, id=name) for name, pmu in definitions()]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trees")
    return {name: make_tree(folder, name) for name in NAMES}


def obeys(table: Table, form: dict[str, tuple[type | tuple[type, ...], bool]]) -> None:
    assert set(table) <= set(form), f"not known: {set(table) - set(form)}"
    for key, (kind, needed) in form.items():
        assert key in table or not needed, f"{key} is missing"
        assert isinstance(table.get(key, kind() if isinstance(kind, type) else ""), kind), key
        assert table.get(key) != "", f"{key} is empty"


def terms_of(text: str) -> dict[str, int]:
    """Return the names and numbers of a text such as `event=0x04,umask=0x3`; a name without a number means 1."""
    terms = {}
    for term in text.strip().split(","):
        name, _, value = term.partition("=")
        terms[name] = int(value, 0) if value else 1
    return terms


def bits_of(form: str) -> int:
    """Return the number of bits of a format field: `config:0-7,21` has nine."""
    _, _, places = form.strip().partition(":")
    ends = [part.split("-") for part in places.split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


def machine_id(name: str) -> str:
    cpuinfo = dict(MACHINES[name].cpuinfo)
    if "vendor_id" in cpuinfo:
        return f"{cpuinfo['vendor_id']}-{cpuinfo['cpu family']}-{cpuinfo['model']}"
    return f"{cpuinfo['CPU implementer']}-{cpuinfo['CPU part']}"


def matching(pmu: Table, trees: dict[str, Path]) -> list[Path]:
    """Return the folders of the PMUs in all trees to which a definition applies."""
    folders = []
    for name, root in trees.items():
        if "cpuid" in pmu and machine_id(name) not in pmu["cpuid"]:
            continue
        for folder in sorted((root / "sys/bus/event_source/devices").iterdir()):
            matches = fnmatch.fnmatchcase(folder.name, pmu["device"])
            if matches and not fnmatch.fnmatchcase(folder.name, pmu.get("not", "")):
                folders.append(folder)
    return folders


# ------------------------------------------------------------------ definitions


@pytest.mark.parametrize("pmu", DEFINITIONS)
def test_a_definition_obeys_the_format(pmu: Table) -> None:
    obeys(pmu, PMU)
    assert ("label" in pmu) == (pmu["component"] != "cpu"), "components need a name, CPUs have one"
    assert set(re.findall(r"{(\w*)}", pmu.get("label", ""))) <= {"package", "index", "device"}
    for cpuid in pmu.get("cpuid", ()):
        assert re.fullmatch(r"(GenuineIntel|AuthenticAMD)-\d+-\d+|0x[0-9a-f]{2}-0x[0-9a-f]{3}", cpuid), cpuid
    for event in pmu["event"]:
        obeys(event, EVENT)
        assert "use" in event or "terms" in event
        assert "scale" not in event or ("terms" in event and event["scale"] > 0)
        for term in terms_of(event.get("terms", "event=1")):
            assert re.fullmatch(r"\w+", term), term
    for metric in pmu["metric"]:
        obeys(metric, METRIC)
        assert metric["name"].startswith(f"{pmu['component']}.")
        assert metric["unit"] in UNITS
        assert ("over" in metric) == (metric["unit"] == "1"), "a share is over something, a rate over time"
        assert "of" not in metric or metric["unit"] == "1"


@pytest.mark.parametrize("pmu", DEFINITIONS)
def test_metrics_are_of_events_that_are_there_and_every_event_is_needed(pmu: Table) -> None:
    names = [event["name"] for event in pmu["event"]]
    assert len(set(names)) == len(names)
    needed: set[str] = set()
    for metric in pmu["metric"]:
        for key in ("sum", "over"):
            for event, weight in metric.get(key, {}).items():
                assert isinstance(weight, float) and weight > 0, (metric["name"], event)
                needed.add(event)
    assert needed == set(names)


@pytest.mark.parametrize("pmu", DEFINITIONS)
def test_encodings_of_one_model_are_for_that_model(pmu: Table) -> None:
    """`terms` of cores and of the fabrics of Intel and AMD have other meanings on other models."""
    everywhere = {"software", "msr", "amd_umc_*"}  # have the same meaning on every processor
    if any("terms" in event for event in pmu["event"]) and pmu["device"] not in everywhere:
        assert pmu.get("cpuid"), pmu["device"]


def test_a_metric_has_one_unit_and_is_a_share_everywhere_or_nowhere() -> None:
    units: dict[str, set[tuple[str, bool]]] = {}
    for _, pmu in definitions():
        for metric in pmu["metric"]:
            units.setdefault(metric["name"], set()).add((metric["unit"], "of" in metric))
    assert {name: unit for name, unit in units.items() if len(unit) > 1} == {}
    assert {name for name, unit in units.items() if unit == {("1", False)}} == {"cpu.ipc"}, "it alone may exceed 1"


@pytest.mark.parametrize("pmu", DEFINITIONS)
def test_trees_of_its_machines_have_what_a_definition_names(pmu: Table, trees: dict[str, Path]) -> None:
    folders = matching(pmu, trees)
    assert folders, "no tree has this PMU"
    for event in pmu["event"]:
        if "use" in event:
            assert any((folder / "events" / event["use"]).is_file() for folder in folders), event["use"]
        for name, value in terms_of(event["terms"]).items() if "terms" in event else ():
            if name == "config":
                continue  # a PMU without formats takes the number directly
            for folder in folders:
                form = folder / "format" / name
                assert form.is_file(), f"{folder.name} has no {name}"
                assert value < 1 << bits_of(form.read_text()), f"{folder.name}: {name}={value:#x} is too large"


def test_a_channel_is_defined_once_for_a_machine(trees: dict[str, Path]) -> None:
    """Two definitions of one metric of one PMU would count it twice."""
    for name in NAMES:
        counted_metrics: set[tuple[str, str]] = set()
        for _, pmu in definitions():
            for folder in matching(pmu, {name: trees[name]}):
                for metric in pmu["metric"]:
                    assert (folder.name, metric["name"]) not in counted_metrics, (name, folder.name, metric["name"])
                    counted_metrics.add((folder.name, metric["name"]))


def counted(trees: dict[str, Path], name: str, metric: str) -> dict[str, Table]:
    """Return the definitions that yield a metric on a machine, by PMU."""
    return {
        folder.name: pmu
        for _, pmu in definitions()
        if any(m["name"] == metric for m in pmu["metric"])
        for folder in matching(pmu, {name: trees[name]})
    }


@pytest.mark.parametrize(
    ("machine", "metric", "pmus"),
    [
        ("intel-hsx-2s", "memory.read", 4),
        ("intel-skx-4s", "memory.write", 6),
        ("intel-icx-2s", "memory.read", 8),
        ("intel-spr-8s", "memory.wire", 8),
        ("intel-gnr-2s", "memory.read", 12),
        ("amd-genoa-2s", "memory.busy", 24),
        ("amd-rome-2s", "memory.traffic", 1),
        ("nvidia-grace-2", "memory.read", 2),
        ("kunpeng-920-2s", "memory.read", 16),
        ("ampere-altra-2s", "memory.read", 0),
        ("intel-hsx-2s", "link.busy", 2),
        ("intel-skx-4s", "link.busy", 3),
        ("intel-spr-8s", "link.in", 4),
        ("amd-rome-2s", "link.out", 1),
        ("amd-turin-2s", "link.in", 1),
        ("nvidia-grace-2", "link.out", 0),
        ("intel-spr-2s", "io.in", 6),
        ("intel-icx-2s", "io.in", 4),
        ("ampere-altra-2s", "io.out", 2),
        ("intel-hybrid", "cpu.ipc", 2),
        ("intel-spr-2s", "cpu.waiting", 1),
        ("amd-rome-2s", "cpu.remote", 0),
        ("amd-genoa-2s", "cpu.remote", 1),
        ("arm-dsu", "l3.missed", 1),
        ("nvidia-grace-2", "io.in", 4),
    ],
)
def test_machines_give_what_the_reference_says(trees: dict[str, Path], machine: str, metric: str, pmus: int) -> None:
    assert len(counted(trees, machine, metric)) == pmus


@pytest.mark.parametrize("machine", ["intel-icx-2s", "intel-gnr-2s"])
def test_aliases_that_older_kernels_have_wrong_are_not_used(trees: dict[str, Path], machine: str) -> None:
    for pmu in counted(trees, machine, "memory.read").values():
        assert all("use" not in event for event in pmu["event"])


def test_a_hundred_bytes_by_alias_are_a_hundred_bytes_by_terms(trees: dict[str, Path]) -> None:
    """The scale and unit of an alias and the scale of the terms beside it give the same number of bytes."""
    compared = 0
    for _, pmu in definitions():
        for folder in matching(pmu, trees):
            for event in pmu["event"]:
                alias = folder / "events" / event.get("use", "none")
                scale = alias.with_name(f"{alias.name}.scale")
                if "terms" not in event or not scale.is_file():
                    continue
                assert terms_of(alias.read_text()) == terms_of(event["terms"]), folder
                assert alias.with_name(f"{alias.name}.unit").read_text() == "MiB"
                assert float(scale.read_text()) * (1 << 20) == event["scale"]
                compared += 1
    assert compared > 20


# ------------------------------------------------------------------ trees


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_is_the_machine_that_it_says(name: str, trees: dict[str, Path]) -> None:
    machine = MACHINES[name]
    with LiveSampler(root=trees[name], sources=("cpu", "node")) as live:
        header = live.header
    cpus, nodes = header.components["cpu"], header.components["node"]
    assert [c["number"] for c in cpus] == list(range(machine.cpus))
    assert [c["package"] for c in cpus] == [machine.package_of(cpu) for cpu in range(machine.cpus)]
    assert [c["node"] for c in cpus] == [c["package"] for c in cpus]
    assert len(nodes) == machine.packages
    for a, node in enumerate(nodes):
        assert list(node["distance"]) == [machine.distance(a, b) for b in range(machine.packages)]


@pytest.mark.parametrize("name", NAMES)
def test_pmus_stand_where_the_kernel_has_them(name: str, trees: dict[str, Path]) -> None:
    folder = trees[name] / "sys/bus/event_source/devices"
    types = {}
    for pmu in folder.iterdir():
        assert pmu.is_symlink() and pmu.resolve() == (trees[name] / "sys/devices" / pmu.name).resolve()
        types[pmu.name] = int((pmu / "type").read_text())
        for form in (pmu / "format").glob("*"):
            assert re.fullmatch(r"config[12]?:\d+(-\d+)?(,\d+(-\d+)?)*\n+", form.read_text()), form
        for event in (pmu / "events").glob("*"):
            if not event.suffix:
                assert set(terms_of(event.read_text())) <= {f.name for f in (pmu / "format").iterdir()} | {"config"}
    assert len(set(types.values())) == len(types)
    assert types["software"] == 1


@pytest.mark.parametrize(("name", "degree", "furthest"), [("intel-skx-4s", 3, 21), ("intel-spr-8s", 4, 31)])
def test_links_are_said_by_both_ends(name: str, degree: int, furthest: int, trees: dict[str, Path]) -> None:
    messages = {}
    for port in (trees[name] / "sys/devices").glob("uncore_upi_*"):
        for die in port.glob("die*"):
            match = re.fullmatch(r"upi_(\d+),die_(\d+)\n", die.read_text())
            assert match is not None
            messages[int(die.name[3:]), int(port.name.rpartition("_")[2])] = (int(match[2]), int(match[1]))
    machine = MACHINES[name]
    assert len(messages) == degree * machine.packages
    for end, other in messages.items():
        assert messages[other] == end and other[0] != end[0]
    assert max(machine.distance(0, b) for b in range(machine.packages)) == furthest


def test_haswell_does_not_say_where_links_lead(trees: dict[str, Path]) -> None:
    assert not list((trees["intel-hsx-2s"] / "sys/devices").glob("uncore_upi*"))
    assert not list((trees["intel-hsx-2s"] / "sys/devices").glob("uncore_qpi_*/die*"))


def test_every_stack_has_a_bus_of_its_own(trees: dict[str, Path]) -> None:
    buses = [f.read_text() for f in (trees["intel-spr-8s"] / "sys/devices").glob("uncore_iio_[0-9]*/die*")]
    assert len(buses) == len(set(buses)) == 6 * 8
    assert all(re.fullmatch(r"0000:[0-9a-f]{2}\n", bus) for bus in buses)


def test_a_large_tree_is_as_large_as_asked(tmp_path: Path) -> None:
    with LiveSampler(root=many(tmp_path, cpus=256, nodes=4), sources=("cpu", "node")) as live:
        assert (live.header.count("cpu"), live.header.count("node")) == (256, 4)
        assert sum(c["node"] == 3 for c in live.header.components["cpu"]) == 64
    assert {f.read_text() for f in (tmp_path / "many-256-4/sys/devices").glob("uncore_imc_*/cpumask")} == {
        "0,64,128,192\n"
    }
    with pytest.raises(ValueError, match=r"cpus: found 10, it must be a multiple of nodes \(4\)"):
        many(tmp_path, cpus=10, nodes=4)
    with pytest.raises(ValueError, match="name: found 'vax', there are intel-hsx-2s"):
        make_tree(tmp_path, "vax")


def test_lists_are_written_as_the_kernel_does() -> None:
    assert list_text([0, 1, 2, 3, 8]) == "0-3,8"
    assert list_text([5, 0, 4]) == "0,4-5"
    assert list_text([]) == ""


def test_disks_keep_their_values_beside_stacks_that_are_counted(tmp_path: Path) -> None:
    """Stacks of the root complex are components of the same class, and precede the disks."""
    tree = make_tree(tmp_path / "tree", "intel-spr-2s")
    disks = tree / "proc" / "diskstats"
    fields = disks.read_text().split()
    rates = []
    with LiveSampler(10.0, 1.0, root=tree) as live:
        names = [c["name"] for c in live.header.components["io"]]
        for frame in live.frames():
            rates.append(frame.values["io.out"])
            fields[9] = str(int(fields[9]) + 2048)  # sectors written
            disks.write_text(" " + " ".join(fields) + "\n")
    place = names.index("nvme0n1")
    assert place > 0 and all(len(values) == len(names) for values in rates)
    assert max(values[place] or 0 for values in rates) > 1e6
    assert all(v is None for values in rates for i, v in enumerate(values) if i != place)
    assert "lanes" in live.header.why_unknown("io.busy", 0)
