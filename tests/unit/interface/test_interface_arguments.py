"""Each public function refuses arguments of wrong types with one sentence that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import meshmark as mm
from meshmark.values.arguments import checked
from meshmark.watch.recording import Recorder
from support.made_frames import frame, header
from support.made_run import latency

ODD: dict[str, Any] = {
    "None": None,
    "integer": 3,
    "negative": -1,
    "huge integer": 10**400,
    "number": 3.5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "true": True,
    "false": False,
    "bytes": b"host",
    "list": [1, None, {}],
    "nested list": [[["a"]]],
    "tuple": ("a", b"b"),
    "dictionary": {"a": 1},
    "dictionary of numbers": {1: 2},
    "deep dictionary": {"a": {"b": object()}},
    "set": {1, 2},
    "path": Path("not/here"),
    "complex": 1j,
    "object": object(),
    "function": print,
    "empty": "",
    "huge text": "x" * 1_000_000,
    "long text": "x" * 90_000,
    "long name": "x" * 300,
    "surrogate": "\ud800",
    "null": "a\0b",
    "newline": "a\nb",
    "digits of another script": "٣",
    "iterator": iter([1]),
    "table of rows": mm.Table.of_rows([{"a": 1}]),
    "empty table": mm.Table(),
    "class": mm.Table,
}


def table() -> mm.Table:
    return mm.Table(None, [("run", "step", record) for record in latency()])


def calls(folder: Path) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return each public function and method by its name, with valid arguments."""
    with Recorder(folder / "r.parquet", header()) as recorder:
        recorder.add(frame(1, 0.2, None, 0.55, 1.0))
    rows, model, recording = table(), mm.model("gs1280-4"), mm.recording(folder / "r.parquet")
    comparison = mm.compare(rows, rows)
    small = {"footprint": "4KiB", "stride": 64, "budget": "1ms", "store": False}
    return {
        "records": (mm.records, {"store": folder}),
        "measure": (mm.measure, {"instrument": "latency", "on": "gs1280-4", **small}),
        "model": (mm.model, {"name": "gs1280-4", "settings": {}}),
        "fit": (mm.fit, {"what": "nosuch"}),
        "compare": (mm.compare, {"a": rows, "b": rows, "store": folder}),
        "chart": (mm.chart, {"what": rows}),
        "recording": (mm.recording, {"path": folder / "r.parquet"}),
        "watch": (mm.watch, {"duration": "0.05s", "rate": "none"}),
        "Table.of_rows": (mm.Table.of_rows, {"rows": [{"a": 1}]}),
        "Table.where": (rows.where, {"metric": "load_latency"}),
        "Table.pooled": (rows.pooled, {}),
        "Table.save": (rows.save, {"path": folder / "t.jsonl"}),
        "Table.chart": (rows.chart, {}),
        "Table.html": (rows.html, {}),
        "Table.to_pandas": (lambda: None, {}),  # needs optional packages
        "Table.to_polars": (lambda: None, {}),
        "Model.measure": (model.measure, {"instrument": "latency", **small}),
        "Model.sweep": (model.sweep, {"vary": {}, "instrument": "latency", **small}),
        "Model.html": (model.html, {}),
        "Comparison.chart": (comparison.chart, {}),
        "Comparison.page": (comparison.page, {}),
        "Comparison.html": (comparison.html, {}),
        "Fit.html": (lambda: None, {}),  # takes no arguments
        "Recording.table": (recording.table, {}),
        "Recording.chart": (recording.chart, {}),
        "Recording.save": (recording.save, {"path": folder / "other.parquet"}),
        "Recording.stop": (recording.stop, {}),
        "Recording.html": (recording.html, {}),
    }


def public() -> Iterator[str]:
    """Yield the names of all public functions and methods."""
    for name in mm.__all__:
        value = getattr(mm, name)
        if inspect.isfunction(value):
            yield name
        elif inspect.isclass(value) and not issubclass(value, Exception):
            for attribute, method in inspect.getmembers(value, callable):
                if not attribute.startswith("_"):
                    yield f"{name}.{method.__name__}"


@pytest.mark.parametrize("name", sorted({*public()}))
def test_only_errors_of_meshmark_come_out_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    function, right = calls(tmp_path)[name]
    problems = []
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    names += ["footprint", "nosuch"] if any(p.kind is p.VAR_KEYWORD for p in parameters) else []
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    for argument in names:
        for kind, value in ODD.items():
            arguments = {**right, argument: value}
            try:
                function(*(arguments.pop(p) for p in positional), **arguments)
            except mm.MeshmarkError as error:
                if len(str(error)) > 2000 or "\n" in str(error):
                    problems.append(f"{argument}={kind}: {len(str(error))} characters: {str(error)[:80]}")
            except Exception as error:
                problems.append(f"{argument}={kind}: {type(error).__name__}: {str(error)[:200]}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("value", [3.5, b"latency", None, ["latency"], "\ud800"], ids=repr)
def test_the_message_names_the_function_the_argument_and_what_is_allowed(value: Any) -> None:
    with pytest.raises(mm.UsageError, match=r"^measure: instrument: found .*; allowed: ") as raised:
        mm.measure(value)
    assert raised.value.status == 2


def test_an_option_of_an_instrument_has_the_sentence_of_the_command_line() -> None:
    with pytest.raises(mm.UsageError, match=r"^latency: .*footprint: found '3\.5'"):
        mm.measure("latency", footprint=3.5, store=False)
    with pytest.raises(mm.UsageError, match=r"^measure: footprint: found a value of type bytes; allowed: a text"):
        mm.measure("latency", footprint=b"4KiB")
    with pytest.raises(mm.UsageError, match=r"^records: got an unexpected keyword argument 'since_'"):
        mm.records(since_="2026")  # type: ignore[call-arg]


def test_an_error_of_the_operating_system_becomes_one_of_meshmark(tmp_path: Path) -> None:
    @checked
    def read(path: str) -> str:
        return Path(path).read_text(encoding="utf-8")

    with pytest.raises(mm.MeshmarkError, match=r"^read: .*/missing: No such file or directory$"):
        read(str(tmp_path / "missing"))
