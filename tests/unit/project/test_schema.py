"""The data that programs, pages and files exchange follows the schemas in schema/."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from meshmark.describe import find_comm, find_probe
from meshmark.load.calibration.native import described_columns, find_load
from meshmark.load.calibration.variants import COUNTS, DERIVED, TIMES
from meshmark.model.engine import find_engine
from meshmark.model.frames import frame_lines, header_line
from meshmark.model.instruments import POINTS, measure
from meshmark.model.machine import find_machine
from meshmark.model.patterns import PATTERNS, PatternRequest, run_pattern
from meshmark.model.workloads import random_reads
from meshmark.native import find_native
from meshmark.place.native import find_place
from meshmark.store.record import BETTER, FLAGS, SOURCES, Flag
from meshmark.watch.frames import frame_of, header_of
from support import made_run
from support.paths import ROOT

SCHEMAS: dict[str, Any] = {p.stem: json.loads(p.read_text()) for p in sorted((ROOT / "schema").glob("*.json"))}
REGISTRY: Registry[Any] = Registry().with_resources(
    (f"{name}.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)


def wrong(name: str, value: object, part: str = "") -> list[str]:
    """Return the errors that a schema (or one of its $defs) reports for a value."""
    schema = {"$ref": f"{name}.json#/$defs/{part}"} if part else SCHEMAS[name]
    return [
        f"{e.json_path}: {e.message[:200]}" for e in Draft202012Validator(schema, registry=REGISTRY).iter_errors(value)
    ]


def lines(*words: str | Path, **more: Any) -> list[dict[str, Any]]:
    completed = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, check=False, **more)
    assert completed.stdout, completed.stderr
    return [json.loads(line) for line in completed.stdout.splitlines()]


def test_there_are_seven_and_each_is_one() -> None:
    assert list(SCHEMAS) == ["describe-load", "describe", "frame", "model-request", "node", "record", "shared-result"]
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


# ------------------------------------------------------------------ records and descriptions


def test_python_knows_the_same_words() -> None:
    properties = SCHEMAS["record"]["properties"]
    assert {*properties["flags"]["items"]["enum"]} == FLAGS == {*get_args(Flag)}
    assert {*properties["source"]["enum"]} == SOURCES and {*properties["better"]["enum"]} == BETTER


@pytest.mark.parametrize("program", [find_probe(), find_comm()], ids=lambda p: p.name)
def test_every_description_has_the_form(program: Path) -> None:
    for d in json.loads(subprocess.run([program, "--describe"], capture_output=True, check=True).stdout):
        assert wrong("describe", d) == [], d["name"]


def test_the_description_of_loads_has_the_form_and_python_the_same_counts() -> None:
    (description,) = lines(find_load(), "describe")
    assert wrong("describe-load", description) == []
    columns = described_columns()
    assert tuple(columns.counts) == COUNTS, "fields of a Variant are those that the program publishes"
    names = [*TIMES, *columns.counts, *DERIVED, *columns.counters]
    assert len(names) == len({*names}), "formulas of metrics name them all"


def test_records_of_every_maker_have_the_form(tmp_path: Path) -> None:
    results = [r for r in lines(find_probe(), "clock", "--budget", "500ms") if r["type"] == "result"]
    assert results
    journal = tmp_path / "run.jsonl"
    subprocess.run(
        [find_place(), "run", "--record", journal, "--", "true"], check=True, timeout=60, capture_output=True
    )
    results_ = [r for r in map(json.loads, journal.read_text().splitlines()) if r["type"] == "result"]
    assert len(results_) >= 3
    records = [r.to_json() for r in (*made_run.everything(), *measure("peak", find_machine("gs1280-4"), {}))]
    for r in (*results, *results_, *records):
        assert wrong("record", r) == [], r["metric"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("better", "fast"),
        ("unit", ""),
        ("flags", ["perfect"]),
        ("samples", []),
        ("source", "rumour"),
        ("extra", 1),
        ("interval", [1.0]),
        ("conditions", {"a": [1]}),
    ],
)
def test_what_is_no_record_is_found(key: str, value: object) -> None:
    r = made_run.record("gups", "update_rate", 1e8, threads=1).to_json()
    assert wrong("record", r) == []
    assert wrong("record", {**r, key: value}) != []
    assert wrong("record", {k: v for k, v in r.items() if k != "better"}) != []


# ------------------------------------------------------------------ frames


def test_frames_of_this_host_of_a_tree_and_of_a_model_have_the_form(tmp_path: Path) -> None:
    watch = find_native("meshmark-watch", "MESHMARK_WATCH")
    with tarfile.open(ROOT / "tests" / "machines" / "numa-2.tar.xz") as archive:
        archive.extractall(tmp_path)
    (root,) = (p.parent for p in tmp_path.rglob("proc") if p.is_dir())
    machine = find_machine("gs1280-4")
    streams: dict[str, list[Mapping[str, Any]]] = {
        "host": list(lines(watch, "--rate", "20", "--duration", "300ms")),
        "tree": list(lines(watch, "--root", root, "--rate", "20", "--duration", "300ms")),
        "model": [header_line(machine, 1e-6), *frame_lines(machine, random_reads(machine, 4), 1000.0, 3)],
    }
    for name, stream in streams.items():
        header = header_of(stream[0])
        assert len(stream) > 2, name
        # As received, and as Python passes them on.
        converted: list[Mapping[str, Any]] = [header.to_json(), *(frame_of(f, header).to_json() for f in stream[1:])]
        for line in (*stream, *converted):
            assert wrong("frame", line, str(line["type"])) == [], f"{name}: {line['type']}"


# ------------------------------------------------------------------ requests to the simulator

LISTENER = """#!{python} -SE
import os, sys
text = sys.stdin.read()
with open(os.environ["ASKED"], "a") as log:
    log.write(text)
read, write = os.pipe()
if os.fork() == 0:
    os.close(read)
    with os.fdopen(write, "w") as to:
        to.write(text)
    os._exit(0)
os.close(write)
os.dup2(read, 0)
os.execv({real!r}, ["meshmark-model"])
"""


def test_every_request_of_ours_has_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "meshmark-model"
    program.write_text(LISTENER.format(python=sys.executable, real=str(find_engine())))
    program.chmod(0o755)
    monkeypatch.setenv("MESHMARK_MODEL", str(program))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    machine = find_machine("gs1280-4")
    for instrument in POINTS:
        measure(instrument, machine, {"threads": "1,2"} if "threads" in POINTS[instrument][1] else {})
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{n % 4} {64 * n:#x} {'rw'[n % 2]}\n" for n in range(64)))
    for workload in PATTERNS:
        run_pattern(
            machine, PatternRequest(workload, chains="1", trace=trace, programs="0=1:0.5", window_ns=1000.0), "x"
        )
    requests = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    kinds = {run["kind"] for request in requests for run in request["runs"]}
    assert {"trial", "describe"} <= kinds and len(requests) > len(POINTS)
    for request in requests:
        assert wrong("model-request", request) == []


def limits(part: str) -> Iterator[tuple[str, float, bool]]:
    """Yield each number of a part at its limits and beyond them, and whether the schema allows it."""
    for key, schema in SCHEMAS["model-request"]["$defs"][part]["properties"].items():
        part_schema = SCHEMAS["model-request"]["$defs"]["ns"] if schema.get("$ref") == "#/$defs/ns" else schema
        if "minimum" in part_schema and key != "owner":  # the limit depends on the machine
            yield key, part_schema["minimum"], True
            yield key, part_schema["minimum"] - 1, False
        if "maximum" in part_schema:
            yield key, part_schema["maximum"] * 2, False


CASES = [(part, *limit) for part in ("trial", "actor", "stream") for limit in limits(part)]


@pytest.mark.parametrize(("part", "key", "value", "allowed"), CASES)
def test_the_program_has_the_limits_of_the_schema(part: str, key: str, value: float, allowed: bool) -> None:
    stream: dict[str, Any] = {"op": "read", "homes": "local"}
    actor: dict[str, Any] = {"cpus": [0], "streams": [stream], "accesses": 10}
    run: dict[str, Any] = {"kind": "trial", "actors": [actor]}
    {"trial": run, "actor": actor, "stream": stream}[part][key] = value
    if key == "accesses" and value == 0:
        run["measure_ns"] = 100
    if key in {"rest_ns", "random_rest"}:
        actor["burst"] = 10
    request = {"machine": find_machine("gs1280-4").resolved(), "runs": [run], "threads": 1}
    assert (wrong("model-request", request) == []) == allowed
    completed = subprocess.run(
        [find_engine()],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ},
    )
    assert (completed.returncode == 0) == allowed, completed.stdout[-300:]
    assert allowed or (completed.returncode == 2 and key in json.loads(completed.stdout.splitlines()[-1])["field"])


# ------------------------------------------------------------------ the page


def test_the_page_is_made_with_the_types_of_the_schema() -> None:
    """The build of the page writes its types from schema/frame.json; the other types describe data that only the page
    gets."""
    build = json.loads((ROOT / "web" / "package.json").read_text())["scripts"]["build"]
    assert build.startswith("node schema.mjs && tsc")
    generated, used_types = ((ROOT / "web" / "src" / f"{name}.ts").read_text() for name in ("schema", "types"))
    for part in ("header", "frame", "metric", "process", "denominators"):
        part_schema = SCHEMAS["frame"]["$defs"][part]
        assert (
            f"interface {part_schema['title']} {{" in generated
            and f"interface {part_schema['title']} " not in used_types
        )
        for key in part_schema["properties"]:
            assert re.search(rf"^{key}\??: ", generated, re.M), f"{part}.{key}"
