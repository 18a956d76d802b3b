"""Test results that are shared: what they contain, what is refused, and the site of them."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import UsageError
from meshmark.measure.importers.card import read_card
from meshmark.store.record import Record, median, median_interval
from meshmark.store.run import RunInfo
from meshmark.views.shared.check import checked_text, problems, read_shared
from meshmark.views.shared.form import MAX_BYTES, MAX_SAMPLES, json_schema
from meshmark.views.shared.reduce import Shared, fewer_samples, shared_result
from meshmark.views.shared.site import write_site
from support import made_run
from support.made_shared import HOST, quiet_records, run, scaled, undisturbed
from support.paths import ROOT

LEAK = "kiwi-07.lab.example 10.1.2.3 /home/jo/x SN:CZ20"


@pytest.fixture(scope="module")
def shared() -> Shared:
    return shared_result(quiet_records(), run(), "Two Xeon in the lab")


def test_a_card_without_private_facts_that_other_commands_read(shared: Shared) -> None:
    machine = checked_text(shared.text)
    assert problems(machine) == []
    card = read_card(shared.text.encode())
    assert card is not None and not card.left_out and len(card.records) == len(machine.records)
    assert {len(r.samples) <= MAX_SAMPLES for r in machine.records} == {True}
    assert machine.result.host.cpus == 4 and machine.result.host.kernel == "6.1.0"
    assert machine.result.started == "2026-11-21", "not the time of the day"
    for private in ("kiwi", "CZ20", "07:15", "/dev", "959f"):
        assert private not in shared.text, private


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    yield path


def planted(facts: dict[str, Any], path: tuple[Any, ...], secret: object) -> dict[str, Any]:
    """Return the facts with a secret in place of the value at a path."""
    changed = copy.deepcopy(facts)
    target: Any = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = secret
    return changed


def leaks(records: list[Record], info: RunInfo) -> bool:
    try:
        return any(part in shared_result(records, info).text for part in re.findall(r"\w{3,}", LEAK))
    except UsageError:
        return False


@pytest.mark.parametrize("secret", [LEAK, [LEAK], {LEAK: LEAK}, {"absent": LEAK}], ids=["text", "list", "key", "why"])
def test_no_fact_of_the_host_can_carry_a_secret(secret: object) -> None:
    records = made_run.bandwidth(2)
    assert [path for path in leaves(HOST) if path and leaks(records, run(planted(HOST, path, secret)))] == []


def test_no_part_of_a_result_can_carry_a_secret() -> None:
    record = undisturbed(made_run.bandwidth(2))[0]
    facts: dict[str, dict[str, Any]] = {
        "conditions": dict(record.conditions),
        "provenance": {"command": "", "build": "", "compiler": ""},
    }
    changes: list[dict[str, Any]] = [
        {place: {**values, key: LEAK}} for place, values in facts.items() for key in (*values, "target", LEAK)
    ]
    changes += [{name: LEAK} for name in ("machine", "instrument", "metric")]
    whole = undisturbed(made_run.bandwidth(2))
    for change in changes:
        assert not leaks([replace(record, **change), *whole[1:]], run()), change
    for name in ("run_id", "machine", "spec_name", "command", "version"):
        change = {name: LEAK}
        assert not leaks(whole, replace(run(), **change)), name
    odd = [replace(record, conditions={**record.conditions, "pages": LEAK})]
    assert sum(shared_result([*odd, *whole[1:]], run()).left_out.values()) == 1, "counted, not renamed"


def test_fewer_samples_have_the_same_median_and_interval() -> None:
    dice = random.Random(7)
    for n in [*range(1, 120), 999, 1000, 1001, 4000]:
        samples = sorted(dice.random() for _ in range(n))
        for count in (12, 6):
            chosen = fewer_samples(samples, count)
            assert len(chosen) == len(set(chosen)) <= count + 1
            assert median(chosen) == median(samples) and median_interval(chosen) == median_interval(samples), n


def test_a_machine_of_256_cpus_is_small_and_its_transfers_become_a_table() -> None:
    many = undisturbed([*made_run.latency(nodes=8), *made_run.bandwidth(256), *made_run.lines(80, ["swap"])])
    host = planted(HOST, ("topology", "cpus"), [{}] * 256)
    text = shared_result(many, run(host)).text
    machine = checked_text(text)
    assert len(text.encode()) <= MAX_BYTES
    table = machine.result.transfers
    assert table is not None and len(table.cpus) == 64 and table.ns[0].startswith("- ")
    metrics = {r.metric for r in machine.records}
    assert metrics >= {"level_latency", "load_latency", "bandwidth_net"}, "the curve of the first node stays"
    swaps = [r for r in machine.records if r.metric == "line_latency"]
    assert len(swaps) in (64 * 63, 64 * 63 + 1), "the best pair has a record of its own"
    original = {(r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value for r in many if r.instrument == "lines"}
    for r in swaps[::97]:
        pair = r.conditions["from_cpu"], r.conditions["to_cpu"]
        assert math.isclose(r.value, original[pair], rel_tol=0.006), pair


def test_a_processor_that_reports_nothing_is_unknown() -> None:
    card = json.loads(shared_result(quiet_records(), run({**HOST, "cpu": {"model": {"absent": "no name"}}})).text)
    assert card["title"] == "2 x unknown processor" and card["host"]["cpu"]["vendor"] == "unknown"
    named = {"vendor": "0x41", "model": {"absent": "no name"}, "family": "8", "model_number": "0xd0c"}
    card = json.loads(shared_result(quiet_records(), run({**HOST, "cpu": named})).text)
    assert card["host"]["cpu"]["model"] == "0x41 family 8 model 0xd0c"


def test_results_that_differ_only_in_later_digits_make_no_contradiction() -> None:
    records = quiet_records()
    swaps = [r for r in records if r.instrument == "lines" and r.conditions["state"] == "swap"]
    for n, (flag, other) in enumerate((("disturbed", "stolen"), ("stolen", "disturbed"))):
        alike = [
            replace(r, samples=(v := 3e-8 * (1 + 1e-7 * k),), value=v, interval=None, flags=frozenset({name}))
            for k, (r, name) in enumerate(zip(swaps, (flag, other), strict=True))
        ]
        alike = [*reversed(alike)] if n else alike
        checked_text(shared_result([*(r for r in records if r.instrument != "lines"), *alike], run()).text)


def test_a_figure_can_be_left_out(shared: Shared) -> None:
    card = json.loads(shared_result(quiet_records(), run(), without=["gups"]).text)
    assert "gups" in json.loads(shared.text)["figures"] and "gups" not in card["figures"]
    with pytest.raises(UsageError, match="--without: found 'nosuch'; allowed: triad_all, "):
        shared_result(quiet_records(), run(), without=["nosuch"])


def test_a_run_that_cannot_be_shared_says_why() -> None:
    with pytest.raises(UsageError, match="does not describe its host"):
        shared_result(quiet_records(), run({}))
    models = [replace(r, source="model") for r in quiet_records()]
    with pytest.raises(UsageError, match="has no result that can be shared"):
        shared_result(models, run())
    with pytest.raises(UsageError, match="title: found '/etc'; allowed: at most 80 letters"):
        shared_result(quiet_records(), run(), "/etc")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("bandwidth", "bandwidth_net", 1e6), "bandwidth bandwidth_net: .* is implausible; plausible: "),
        (("latency", "level_latency", 1e-3), "latency level_latency: .* is implausible"),
        (("latency", "level_latency", 30), "the latency of the first level is .* cycles at "),
        (("peak", "flop_rate", 1e-3), "dgemm is .* times peak_fp64; at most 1.15 times is plausible"),
    ],
)
def test_what_cannot_be_is_refused(change: tuple[str, str, float], reason: str) -> None:
    reasons = problems(checked_text(scaled(*change).text))
    assert any(re.search(reason, text) for text in reasons), reasons


def test_what_was_disturbed_is_refused_with_the_remedy() -> None:
    records = [replace(r, flags=frozenset({"stolen"})) if r.instrument == "bandwidth" else r for r in quiet_records()]
    reasons = problems(checked_text(shared_result(records, run()).text))
    assert any(
        re.match("triad_all, triad_one are flagged stolen: the hypervisor gave .*; measure", r) for r in reasons
    ), reasons


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("host", "name"), "kiwi", "host.name: unknown key"),
        (("figures", "triad_all", "value"), 1e9, "figures.triad_all: found 1e[+]09 B/s"),
        (("figures", "made_up"), None, "figures.made_up: found None"),
        (("title",), "see /home/jo", "title: found 'see /home/jo'"),
        (("title",), "10.0.0.7:8080", "title: found"),
        (("host", "cpu", "model"), "kiwi-07", "host.cpu.model: found 'kiwi-07'; allowed: the model of a processor"),
        (("records", 0, "conditions", "target"), "/mnt/kiwi", "records.0.: ?conditions|it is not shared"),
        (("records", 0, "results", 0, "samples"), [float("nan")], "found nan|samples"),
        (("records", 0, "machine"), "other", "the machine differs"),
        (("shared",), 2, "shared: found 2"),
        (("records",), [], "records: found"),
    ],
)
def test_a_changed_file_is_refused_in_one_line(
    shared: Shared, tmp_path: Path, path: tuple[Any, ...], value: object, message: str
) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps(planted(json.loads(shared.text), path, value)))
    with pytest.raises(UsageError) as error:
        read_shared(file)
    assert re.search(message, str(error.value)), error.value
    assert "\n" not in str(error.value)


def test_values_that_differ_from_their_samples_are_refused(shared: Shared, tmp_path: Path) -> None:
    card = json.loads(shared.text)
    card["records"][0]["results"][0]["value"] = 1.0
    (tmp_path / "m.json").write_text(json.dumps(card))
    with pytest.raises(UsageError, match=r"group 1 of records, result 1: value: found 1\.0, the median"):
        read_shared(tmp_path / "m.json")


def test_the_published_schema_is_that_of_the_form() -> None:
    assert json.loads((ROOT / "schema" / "shared-result.json").read_text()) == json_schema()


def test_each_machine_of_a_site_has_a_page_and_curves(shared: Shared, tmp_path: Path) -> None:
    other = scaled("bandwidth", "bandwidth_net", 0.5)
    machines = [checked_text(shared.text), checked_text(other.text), checked_text(shared.text)]
    index = write_site(machines, tmp_path / "html", "Our <machines>")
    page = index.read_text()
    assert "<title>Our &lt;machines&gt;</title>" in page and "2 machines, measured" in page
    for machine in machines[:2]:
        assert page.count(f"machines/{machine.id}.html") == 1
        report = (tmp_path / "html" / "machines" / f"{machine.id}.html").read_text()
        assert '<script src="../charts.js">' in report and "All machines" in report and len(report) < 300_000
        script = (tmp_path / "html" / "machines" / f"{machine.id}.js").read_text()
        data = json.loads(script.removeprefix("machine(").removesuffix(");\n"))
        assert data["id"] == machine.id
        assert [p["x"] for p in data["bandwidth"]] == [1, 4] and len(data["latency"]) > 10 and data["loaded"]
    assert index.stat().st_mode & 0o044 == 0o044, "for a web server"
