"""An audit of counters tells by which factor they are wrong: simulated counters of every kind get the right verdict."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import AbsentError, UsageError
from meshmark.watch.audit.judgement import CounterAudit
from meshmark.watch.audit.run import audit_file, result_of, store_audit, stored_verdicts
from meshmark.watch.canary import run_sampler
from meshmark.watch.frames import FrameError, Header, header_of
from meshmark.watch.live import sample_this_host

RATES_BYTES_PER_S = (0.0, 1e9, 2e9, 3e9)
BACKGROUND_BYTES_PER_S = 0.2e9
METRICS = ("memory.read", "memory.write", "link.out", "link.in", "l3.total")
# A counter as a function of the bytes that pass it and of a generator of random numbers.
Counter = Callable[[float, random.Random], float | None]


def header(metrics: tuple[str, ...] = METRICS) -> Header:
    """Return the header of a machine with two sockets, each with two memory channels, and a link in each direction."""
    return header_of(
        {
            "type": "header",
            "format": 1,
            "source": "host",
            "machine": "server",
            "started": "",
            "period_s": 1,
            "components": {
                "node": [{"name": f"node {n}"} for n in (0, 1)],
                "cpu": [{"name": f"CPU {n}", "node": n, "package": n} for n in (0, 1)],
                "memory": [{"name": f"memory {n}.{c}", "package": n, "node": n} for n in (0, 1) for c in (0, 1)],
                "link": [{"name": f"{n} to {1 - n}", "from": n, "to": 1 - n} for n in (0, 1)],
                "l3": [{"name": "L3 0"}, {"name": "L3 1"}],
            },
            "metrics": [{"name": m, "unit": "B/s", "what": "counted"} for m in metrics],
        }
    )


def lines(counters: dict[str, Counter], rounds: int = 10, noise: float = 0.01, seed: int = 1) -> list[dict[str, Any]]:
    """Return the lines of an audit in which all traffic is known and each metric counts as its function says."""
    rng = random.Random(seed)

    def sample(load: str, cpu_node: int, memory_node: int, number: int, rate: int) -> dict[str, Any]:
        moved = RATES_BYTES_PER_S[rate]
        traffic = {m: [0.0] * (4 if m.startswith("memory") else 2) for m in METRICS}
        for channel in (2 * memory_node, 2 * memory_node + 1):
            traffic[f"memory.{load}"][channel] = (moved + BACKGROUND_BYTES_PER_S) / 2
            if load == "write":  # read for ownership
                traffic["memory.read"][channel] = moved / 2
        traffic["l3.total"][cpu_node] = moved + BACKGROUND_BYTES_PER_S
        if cpu_node != memory_node:
            traffic["link.out"][memory_node] = traffic["link.in"][cpu_node] = moved + BACKGROUND_BYTES_PER_S
        values = {
            m: [counters[m](v * (1 + rng.gauss(0, noise)), rng) for v in traffic[m]] for m in counters if m in traffic
        }
        nodes = {"cpu_node": cpu_node, "memory_node": memory_node}
        return {"type": "audit", "load": load, **nodes, "round": number, "rate": rate, "moved": moved, "values": values}

    loads = [("read", 0, 0), ("write", 0, 0), ("read", 1, 1), ("write", 1, 1), ("read", 0, 1), ("read", 1, 0)]
    return [sample(*load, number, rate) for load in loads for number in range(rounds) for rate in range(4)]


def times(factor: float) -> Counter:
    return lambda value, _: factor * value


def judged(counter: Counter, metric: str = "memory.read", **how: Any) -> list[CounterAudit]:
    return list(result_of(header((metric,)), lines({metric: counter}, **how)).counters)


@pytest.mark.parametrize("metric", METRICS)
def test_a_counter_that_counts_right_is_right(metric: str) -> None:
    audits = judged(times(1), metric)
    assert len(audits) == 2  # both nodes, or both directions
    for one in audits:
        assert one.verdict == "right" and str(one) == "right", one
        assert one.interval is not None and one.factor is not None
        assert one.interval[0] <= one.factor <= one.interval[1] and abs(one.factor - 1) < 0.02
        assert one.background == pytest.approx(BACKGROUND_BYTES_PER_S, rel=0.05)
        assert one.points[-1][0] == RATES_BYTES_PER_S[-1]


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("metric", METRICS)
def test_a_counter_that_is_wrong_by_a_factor_is_reported_with_its_interval(metric: str, factor: float) -> None:
    for one in judged(times(factor), metric):
        assert one.verdict == "wrong" and one.interval is not None and one.factor is not None
        assert one.interval[0] <= factor * 1.01 and one.interval[1] >= factor * 0.99, one.interval
        assert one.interval[1] - one.interval[0] < 0.1 * factor
        low, high = one.interval
        assert str(one) == f"wrong by the factor {one.factor:.2f} [{low:.2f}, {high:.2f}]"


def test_the_interval_covers_the_true_factor_as_often_as_it_states() -> None:
    covered = [
        one.interval[0] <= 2 <= one.interval[1]
        for seed in range(100)
        for one in judged(times(2), noise=0.05, seed=seed)
        if one.interval is not None
    ]
    assert len(covered) == 200 and sum(covered) >= 180  # 95 % of 200 are 190; 180 has a probability below 0.002


@pytest.mark.parametrize("value", [0.0, 7e9])
def test_a_stuck_counter_counts_nothing(value: float) -> None:
    for one in judged(lambda _, __: value):
        assert one.verdict == "counts nothing" and one.factor == 0


def test_a_counter_whose_noise_hides_the_factor_is_not_judged() -> None:
    for one in judged(lambda value, rng: value + rng.uniform(0, 20e9)):
        assert one.verdict == "could not tell" and "is too wide" in one.reason, one


def test_a_disturbance_in_one_round_does_not_matter() -> None:
    disturbed = lines({"memory.read": times(1)})
    for line in disturbed:
        if line["round"] == 3 and line["rate"] == 2:
            line["values"]["memory.read"] = [v + 50e9 for v in line["values"]["memory.read"]]
    for one in result_of(header(("memory.read",)), disturbed).counters:
        assert one.verdict == "right", one


def test_a_counter_that_saturates_is_not_judged() -> None:
    for one in judged(lambda value, _: min(value, 0.8e9)):
        assert one.verdict == "could not tell" and one.reason.startswith("not proportional: "), one


def test_too_few_known_values_are_not_judged() -> None:
    for one in judged(times(1), rounds=5):
        assert (
            str(one) == "could not tell: its value is known in 5 rounds, at least 6 are required"
        ) and one.interval is None
    for one in judged(lambda _, __: None):
        assert one.factor is None and "known in 0 rounds" in one.reason
    still = [{**line, "moved": 0.0} for line in lines({"memory.read": times(1)})]
    assert {c.reason for c in result_of(header(("memory.read",)), still).counters} == {"the load moved nothing"}


def test_a_silent_channel_is_named_and_halves_the_factor() -> None:
    silent = lines({"memory.read": times(1)})
    for line in silent:
        line["values"]["memory.read"][1] = 0.0
    first, second = result_of(header(("memory.read",)), silent).counters
    assert first.silent == ("memory 0.1",) and first.verdict == "wrong" and first.factor == pytest.approx(0.5, abs=0.02)
    assert second.silent == () and second.verdict == "right"


def test_a_link_is_judged_by_the_data_that_its_sender_sends() -> None:
    first, second = judged(times(1), "link.out")
    assert {first.route, second.route} == {"node 0 to node 1", "node 1 to node 0"}
    assert first.counters == ("1 to 0",) and first.memory_node == "node 1"
    assert judged(times(1), "link.in")[0].counters == ("0 to 1",)


def test_nodes_without_a_load_are_stated() -> None:
    first_node = [line for line in lines({"memory.read": times(1)}) if line["cpu_node"] == 0]
    assert result_of(header(), first_node).skipped == ("node 1",)


@pytest.mark.parametrize(
    "change", [{"rate": "x"}, {"memory_node": 7}, {"values": 3}, {"moved": None}, {"round": None}, {"cpu_node": -1}]
)
def test_a_damaged_line_is_an_error_of_one_line(change: dict[str, Any]) -> None:
    damaged = {**lines({"memory.read": times(1)}, rounds=1)[0], **change}
    with pytest.raises(FrameError) as error:
        result_of(header(), [damaged])
    assert "\n" not in str(error.value)


def simulated_sampler(folder: Path, counters: dict[str, Counter], monkeypatch: pytest.MonkeyPatch) -> None:
    output = [header(tuple(counters)).to_json(), *lines(counters)]
    (folder / "output").write_text("".join(json.dumps(line) + "\n" for line in output))
    path = folder / "sampler"
    path.write_text(f"#!/bin/sh\n[ \"$1\" = --audit ] && exec cat '{folder}/output'\nexit 1\n")
    path.chmod(0o755)
    monkeypatch.setenv("MESHMARK_WATCH", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))


@pytest.mark.parametrize(
    ("counter", "status", "text"),
    [
        (times(1), 0, "right"),
        (times(2), 1, "wrong by the factor 2.0"),
        (lambda _, __: 5.0, 1, "counts nothing"),
        (lambda value, rng: value + rng.uniform(0, 20e9), 3, "could not tell"),
    ],
)
def test_the_command_prints_stores_and_ends_with_its_verdict(
    counter: Counter, status: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated_sampler(tmp_path, {"memory.read": counter}, monkeypatch)
    result = CliRunner().invoke(app, ["watch", "--audit"], env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    assert text in result.stdout and "memory.read" in result.stdout and "read node 1" in result.stdout
    as_json = CliRunner().invoke(app, ["watch", "--audit", "--json"])
    answer = json.loads(as_json.stdout)
    assert as_json.exit_code == status and answer["type"] == "audit" and len(answer["counters"]) == 2
    (file,) = (tmp_path / "data" / "meshmark" / "audit").iterdir()
    assert json.loads(file.read_text())["counters"] == answer["counters"]
    assert text in answer["verdicts"]["memory.read"]


def test_frames_state_the_audit_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with sample_this_host(10.0, 0.1, canary=False) as live:
        assert "audit" not in live.header.more
    result = result_of(header(), lines({"memory.read": times(2), "memory.write": times(1)}))
    file = store_audit(result)
    with sample_this_host(10.0, 0.1, canary=False) as live:
        stored = live.header.more["audit"]
    assert stored["when"] == result.when and stored["verdicts"]["memory.write"] == "right"
    assert stored["verdicts"]["memory.read"].startswith("node 0: wrong by the factor 2.0")
    assert audit_file("a/b").name == "a_b.json"
    shown = CliRunner().invoke(app, ["watch", "--no-canary", "--rate", "10", "--duration", "100ms"])
    assert f"counters audited on {result.when[:10]}: memory.read node 0: wrong" in shown.stdout.replace("\n", " ")
    for damaged in ("", "[1]", "{}", '{"when": 1, "verdicts": 3}'):
        file.write_text(damaged)
        assert stored_verdicts("x") is None
        with sample_this_host(10.0, 0.1, canary=False) as live:
            assert "audit" not in live.header.more


def test_without_counters_the_reason_and_the_remedy_are_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sampler"
    path.write_text("#!/bin/sh\necho 'meshmark-watch: absent: no counters' >&2; echo 'hint: load them' >&2; exit 77\n")
    path.chmod(0o755)
    monkeypatch.setenv("MESHMARK_WATCH", str(path))
    with pytest.raises(AbsentError, match=r"^no counters$") as error:
        run_sampler("--audit", "1")
    assert error.value.hint == "load them"


@pytest.mark.parametrize("option", ["--audit", "--calibrate"])
@pytest.mark.parametrize("other", [["--on", "gs1280-16"], ["--root", "."]])
def test_only_this_machine_is_measured(option: str, other: list[str]) -> None:
    result = CliRunner().invoke(app, ["watch", option, *other])
    assert isinstance(result.exception, UsageError)
    assert f"{other[0]}: found with {option}" in str(result.exception)
