"""Watching this machine uses the results of its survey and the calibration of the canary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.facts import host_id
from meshmark.store.record import Record
from meshmark.watch import live, sustained
from meshmark.watch.canary import calibrate, calibration_file, shows_traffic
from meshmark.watch.frames import FrameMetric, Header
from meshmark.watch.live import LiveSampler, memory_is_counted, sample_this_host
from meshmark.watch.sustained import sustained_bandwidth

CURVE = {
    "nodes": {"0": [[0.0, 99e-9, 100e-9, 101e-9], [1e10, 119e-9, 120e-9, 121e-9], [2e10, 150e-9, 160e-9, 170e-9]]},
    "tells": {"0": True},
}


def record(kernel: str, store: str, rate: float, node: int | str = "local", footprint: int = 1 << 30) -> Record:
    return Record(
        source="host",
        machine="h",
        instrument="bandwidth",
        metric="bandwidth_gross",
        unit="B/s",
        better="higher",
        samples=(rate,),
        value=rate,
        interval=None,
        provenance={"start": "2026-11-21T10:00:00Z"},
        conditions={"kernel": kernel, "store": store, "memory_node": node, "footprint_bytes": footprint},
    )


def test_the_best_of_every_mix_of_every_node_counts() -> None:
    bandwidth = sustained_bandwidth(
        [
            record("read", "ordinary", 40e9, 0),
            record("read", "ordinary", 38e9, 0),
            record("read", "ordinary", 30e9, 1),
            record("copy", "streaming", 32e9, 0),
            record("write", "ordinary", 31e9, 0),
            record("read", "ordinary", 900e9, 0, 1 << 16),  # the bandwidth of a cache
            record("gather", "ordinary", 1e9, 0),
        ],
        2,
    )
    assert bandwidth == {
        "from": "the survey of 2026-11-21",
        "memory": {"0": [[0.5, 32e9], [1.0, 40e9]], "1": [[1.0, 30e9]]},
    }


def test_what_was_local_to_every_node_is_shared_out_and_nothing_is_nothing() -> None:
    bandwidth = sustained_bandwidth([record("triad", "streaming", 80e9)], 2)
    assert bandwidth is not None and bandwidth["memory"] == {"0": [[2 / 3, 40e9]], "1": [[2 / 3, 40e9]]}
    assert sustained_bandwidth([], 2) is None


def test_a_calibrated_canary_estimates_with_an_interval_and_says_so(tmp_path: Path) -> None:
    curve = tmp_path / "curve.json"
    curve.write_text(json.dumps(CURVE))
    with LiveSampler(10.0, 3.5, sources=["canary"], canary=curve) as live:
        header, frames = live.header, list(live.frames())
    assert header.use["memory"] == "memory.pressure"
    metrics = {m.name: m for m in header.metrics}
    assert metrics["memory.pressure"].estimated and metrics["memory.moved_high"].unit == "B/s"
    assert frames[0].values["memory.pressure"] == [None]  # too few walks for a median
    last = {
        name: frames[-1].values[f"memory.{name}"][0] for name in ("pressure", "pressure_low", "pressure_high", "moved")
    }
    assert all(v is not None for v in last.values()), last
    assert last["pressure_low"] <= last["pressure"] <= last["pressure_high"]  # type: ignore[operator]
    assert last["moved"] == pytest.approx((last["pressure"] or 0) * 2e10, rel=1e-3, abs=2e6)


def test_a_curve_that_tells_nothing_is_no_estimate(tmp_path: Path) -> None:
    curve = tmp_path / "curve.json"
    curve.write_text(json.dumps({"nodes": {"0": [[0.0, 99e-9, 100e-9, 101e-9], [1e10, 99e-9, 100e-9, 102e-9]]}}))
    with LiveSampler(10.0, 0.2, sources=["canary"], canary=curve) as live:
        assert "cannot saturate" in live.header.why_unknown("memory.pressure", 0)
    curve.write_text('{"nodes": {"0": [[1, 2]]}}')
    with pytest.raises(MeshmarkError, match="--canary: points of"):
        LiveSampler(10.0, 0.2, sources=["canary"], canary=curve)
    curve.write_text("[1]")
    with pytest.raises(MeshmarkError, match="a JSON object is required"):
        LiveSampler(10.0, 0.2, canary=curve)


def made_up_sampler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "sampler"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    monkeypatch.setenv("MESHMARK_WATCH", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))


def test_a_calibration_is_kept_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_sampler(tmp_path, f"echo '{json.dumps(CURVE)}'\n", monkeypatch)
    result = CliRunner().invoke(app, ["watch", "--calibrate"])
    assert result.exit_code == 0 and "20.0" in result.stdout and "160.0" in result.stdout
    restored = list((tmp_path / "data" / "meshmark" / "canary").iterdir())
    assert len(restored) == 1 and json.loads(restored[0].read_text())["nodes"] == CURVE["nodes"]
    monkeypatch.delenv("MESHMARK_WATCH")
    assert calibration_file("a/b").name == "a_b.json"
    with sample_this_host(10.0, 0.1) as live:
        assert "memory.pressure" in {m.name for m in live.header.metrics}
    with sample_this_host(10.0, 0.1, canary=False) as live:
        assert "node.latency" not in {m.name for m in live.header.metrics}


@pytest.mark.parametrize("told", [True, False])
def test_whether_a_calibration_tells_is_what_the_sampler_says(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_sampler(tmp_path, f"echo '{json.dumps({**CURVE, 'tells': {'0': told}})}'\n", monkeypatch)
    result = CliRunner().invoke(app, ["watch", "--calibrate"])
    assert result.exit_code == 0 and ("memory pressure cannot be estimated" in result.stderr) is not told
    (restored,) = (tmp_path / "data" / "meshmark" / "canary").iterdir()
    assert shows_traffic(restored) is told
    for text in ("", "[1]", "{}", '{"tells": 3}'):
        restored.write_text(text)
        assert not shows_traffic(restored)
    assert not shows_traffic(tmp_path / "nothing")


def test_store_and_firmware_are_asked_only_where_something_is_a_share_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sustained, "sustained_in_store", lambda *_: requests.append("store"))
    monkeypatch.setattr("meshmark.machine.facts.wire_bandwidth", lambda *_: requests.append("firmware"))

    def start(counted: bool, **how: Any) -> list[str]:
        requests.clear()
        monkeypatch.setattr(live, "memory_is_counted", lambda: counted)
        with sample_this_host(10.0, 0.1, **how):
            return list(requests)

    assert start(counted=False) == []
    assert start(counted=True) == ["store", "firmware"]
    assert start(counted=True, full_scale="theoretical") == ["firmware"]
    file = calibration_file(host_id())
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(CURVE))
    assert start(counted=False) == ["store"]  # an estimate is a share of the sustained bandwidth
    assert start(counted=False, canary=False) == []
    file.write_text(json.dumps({**CURVE, "tells": {"0": False}}))
    assert start(counted=False) == []


def test_memory_is_counted_where_the_sampler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, is_counted in (("memory.read", True), ("link.out", False)):
        header = Header("host", "h", "", 1.0, {}, (FrameMetric(name, "B/s", "moved"),))
        made_up_sampler(tmp_path, f"echo '{json.dumps(header.to_json())}'\nexec sleep 60\n", monkeypatch)
        assert memory_is_counted() is is_counted


def test_a_calibration_that_cannot_be_had_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_sampler(tmp_path, "echo 'meshmark-watch: error: one CPU' >&2; exit 77\n", monkeypatch)
    with pytest.raises(AbsentError, match=r"^one CPU$"):
        calibrate(1.0)
    result = CliRunner().invoke(app, ["watch", "--full-scale", "paper"])
    assert isinstance(result.exception, UsageError) and "allowed: sustained, theoretical" in str(result.exception)
