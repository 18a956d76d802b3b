"""The reference pages on scenarios, programs and metrics agree with the code: every key, default and limit."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.metrics import RESERVED, all_metrics, parse_metrics
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario import scenario as scenarios
from meshmark.load.scenario.scenario import Canary, Scenario, ScenarioProgram, parse_scenario
from meshmark.load.synthesis import synthesize
from meshmark.load.synthesis.program import dump_program
from support.made_base import made_base
from support.paths import ROOT
from support.scripts import docs_script

DOCS = ROOT / "docs"
BEHAVES = "[[program]]: how it behaves"


def sections(name: str) -> dict[str, list[dict[str, str]]]:
    """Return the rows of the tables of a reference page by heading; each row maps column titles to cells."""
    tables: dict[str, list[dict[str, str]]] = {}
    headers: list[str] = []
    title = ""
    for line in (DOCS / "reference" / f"{name}.md").read_text().splitlines():
        if line.startswith("## "):
            title, headers = line[3:], []
        elif line.startswith("|"):
            cells = [c.strip() for c in line.strip("|").split("|")]
            if not headers:
                headers = cells
            elif not set(cells[0]) <= {"-"}:
                tables.setdefault(title, []).append(dict(zip(headers, cells, strict=True)))
    return tables


def key(row: dict[str, str]) -> str:
    return next(iter(row.values())).strip("`")


SCENARIO = sections("scenario-files")
PROGRAM = sections("program-files")


def keys(page: dict[str, list[dict[str, str]]], title: str) -> set[str]:
    return {key(row) for row in page[title]}


def names_of(table: type[Any]) -> set[str]:
    return {f.name for f in dataclasses.fields(table)}


def test_every_key_of_a_scenario_is_on_the_page_and_the_reverse() -> None:
    assert keys(SCENARIO, "[scenario]") == names_of(scenarios.ScenarioTable)
    assert keys(SCENARIO, "canary") == names_of(Canary)
    program_keys = set().union(*(keys(SCENARIO, t) for t in SCENARIO if t.startswith("[[program]]")))
    assert program_keys == {*scenarios.PROGRAM_KEYS, *RESERVED, "load_balance"}
    assert "load_balance" in all_metrics()
    tables = {re.sub(r"\W|NAME", "", t.partition(":")[0]) for t in SCENARIO if t.startswith("[")}
    assert tables == names_of(scenarios.ScenarioFile)


def text_of(title: str, name: str, value: str) -> str:
    """Return a scenario that sets one key of a section."""
    if title == "[scenario]":
        return f'[scenario]\n{name} = {value}\n[[program]]\ncommand = ["true"]\n'
    if title == "canary":
        return f'[scenario]\ncanary = {{ {name} = {value} }}\n[[program]]\ncommand = ["true"]\n'
    if title == BEHAVES:
        start = "" if name == "run_time_s" else "run_time_s = 1.0\n"
        return f"[[program]]\n{start}threads = {4096 if name == 'load_balance' else 1}\n{name} = {value}\n"
    return f'[[program]]\ncommand = ["true"]\n{name} = {value}\n'


LIMITED = [
    (title, key(row), row["type"], *row["allowed"].split(" to "))
    for title, rows in SCENARIO.items()
    for row in rows
    if re.fullmatch(r"[-0-9.e+]+ to [-0-9.e+]+", row["allowed"])
]


def test_limits_are_on_the_page() -> None:
    assert len(LIMITED) >= 15


@pytest.mark.parametrize(("title", "name", "kind", "low", "high"), LIMITED)
def test_limits_are_those_of_the_page(title: str, name: str, kind: str, low: str, high: str) -> None:
    is_integer = kind.startswith("integer")
    number = int if is_integer else float
    step = 1 if is_integer else 1e-6 * max(abs(float(low)), 1e-6)
    for limit in (low, high):
        if name == "load_balance" and limit == low:
            continue  # no number of threads allows such uneven shares
        parse_scenario(text_of(title, name, str(number(limit))), "x")
    for outside in (number(low) - step, number(high) + (1 if is_integer else 1e-6 * float(high))):
        with pytest.raises(UsageError, match=rf"{name}: found .*allowed: an? (number|integer) from"):
            parse_scenario(text_of(title, name, repr(outside)), "x")
    if is_integer:
        with pytest.raises(UsageError, match="integer"):
            parse_scenario(text_of(title, name, "1.5"), "x")


CHOICES = [
    (title, key(row), re.findall(r"`(\w+)`", row["allowed"]))
    for title, rows in SCENARIO.items()
    for row in rows
    if re.fullmatch(r"(`\w+`(, )?)+", row["allowed"])
]


@pytest.mark.parametrize(("title", "name", "words"), CHOICES)
def test_choices_are_those_of_the_page(title: str, name: str, words: list[str]) -> None:
    for word in words:
        parse_scenario(text_of(title, name, f'"{word}"'), "x")
    with pytest.raises(UsageError, match=f"{name}: found 'nonsense'; allowed: {', '.join(words)}"):
        parse_scenario(text_of(title, name, '"nonsense"'), "x")


def test_defaults_are_those_of_the_page() -> None:
    def default(of: type[Any], name: str) -> Any:
        f = next(f for f in dataclasses.fields(of) if f.name == name)
        return f.default if f.default is not dataclasses.MISSING else f.default_factory()  # type: ignore[operator]

    def as_written(value: object) -> str:
        if isinstance(value, Canary):
            return "`true`"
        if value in ((), {}):
            return "`[]`" if value == () else "`{}`"
        return f"`{json.dumps(value)}`"

    count = 0
    for title, table in (
        ("[scenario]", Scenario),
        ("canary", Canary),
        (BEHAVES, TargetProfile),
        ("[[program]]: where and when", ScenarioProgram),
        ("[[program]]: what runs", ScenarioProgram),
    ):
        for row in SCENARIO[title]:
            name = key(row)
            if not row["default"] or (name == "name" and table is ScenarioProgram):
                continue
            value = default(table, name)
            assert row["default"] == as_written(value[0] if name == "start_s" else value), name
            count += 1
    assert count > 25
    assert parse_scenario('[[program]]\ncommand = ["true"]\n', "x").programs[0].name == "program"


def test_the_example_of_the_page_is_a_scenario() -> None:
    page = (DOCS / "reference" / "scenario-files.md").read_text()
    text = "\n".join(line[4:] for line in page.splitlines() if line.startswith("    ") or not line)
    assert [p.name for p in parse_scenario(text, "x").programs] == ["traffic", "melt"]


def test_every_field_of_a_program_is_on_the_page_and_the_reverse() -> None:
    target = TargetProfile(run_time_s=5.0, metrics={"memory_gb_per_s": 1.0, "gflop_per_s": 0.5})
    raw = json.loads(dump_program(synthesize(made_base(), target)))
    assert keys(PROGRAM, "The file") == raw.keys()
    assert keys(PROGRAM, "Planned") == raw["planned"].keys()
    fields = {f.name: f for f in dataclasses.fields(Variant)}
    assert keys(PROGRAM, "A variant") == {*fields, "calls", "phase"}
    for row in PROGRAM["A variant"]:
        f = fields.get(key(row))
        if f is None or f.default in (dataclasses.MISSING, None):
            assert row["default"] in {"", "`{}`"}, key(row)
        else:
            assert row["default"].strip("`") == str(f.default).removesuffix(".0").lower()
        unit = {"s": "s", "bytes": "B"}.get(key(row).rpartition("_")[2])
        assert unit is None or row["unit"] == unit


def generated() -> list[str]:
    return list(docs_script("generate").load_metrics())


def test_the_page_of_metrics_is_as_it_is_generated() -> None:
    page = (DOCS / "reference" / "load-metrics.md").read_text()
    assert page == "\n".join(generated()).rstrip() + "\n", "run docs/generate.py"
    for name, m in all_metrics().items():
        assert f"| `{name}` | {m.unit} | `{m.formula}` |" in page
    example = "\n".join(line[4:] for line in page.splitlines() if line.startswith("    "))
    assert parse_metrics(example, "page").keys() == {"bytes_per_flop"}


def test_the_pages_can_be_reached() -> None:
    for page in ("scenario-files", "program-files", "load-metrics"):
        assert page in (DOCS / "reference" / "index.md").read_text().split()
        assert f"../reference/{page}.md" in (DOCS / "how-to" / "load.md").read_text()


def test_a_name_of_a_counter_is_no_name_of_a_metric() -> None:
    with pytest.raises((UsageError, MeshmarkError), match="is not a column"):
        parse_metrics('[metric.cycles]\nformula = "flops / wall_s"\n', "own.toml")
