"""Machine files that are fitted to key numbers: simulated instruments reproduce these numbers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.model.fitting.from_numbers import KeyNumberFit, fit_numbers
from meshmark.model.fitting.key_numbers import KeyNumber, KeyNumbers, check, conflicts, show
from meshmark.model.instruments import measure

TWO = {"cores": 32, "idle-local": 80e-9, "idle-remote": 140e-9, "read": 200e9}
ONE = {"cores": 8, "idle-local": 75e-9, "read": 40e9}
ALL = {**TWO, "triad": 140e9, "link": 35e9, "core-read": 12e9, "transfer": 120e-9, "loaded": 250e-9, "clock": 2.4e9}


def numbers(given: dict[str, float], store: str = "ordinary") -> KeyNumbers:
    return KeyNumbers(2 if "idle-remote" in given else 1, {n: KeyNumber(v, f"--{n}") for n, v in given.items()}, store)


def fitted(folder: Path, given: dict[str, float], store: str = "ordinary") -> KeyNumberFit:
    checked = numbers(given, store)
    check(checked)
    return fit_numbers(checked, "made", folder)


@pytest.mark.parametrize(
    "given",
    [
        TWO,
        ONE,
        ALL,
        {**TWO, "l3": 60 << 20},
        {**ONE, "triad": 27e9, "core-read": 9e9, "transfer": 24e-9},
        {"cores": 130, "idle-local": 110e-9, "idle-remote": 200e-9, "read": 450e9, "triad": 320e9, "link": 110e9},
    ],
)
def test_the_model_gives_the_numbers_that_were_given(tmp_path: Path, given: dict[str, float]) -> None:
    result = fitted(tmp_path, given)
    assert {o.name for o in result.outcomes if o.given is not None} == set(given)
    for outcome in result.outcomes:
        tolerance = 0.05 if outcome.name == "loaded" else 0.01
        assert outcome.error is None or abs(outcome.error) < tolerance, outcome
        assert not outcome.warning
        kind = "given" if outcome.given is not None else "assumed"
        assert outcome.how.startswith((kind, "fitted")) if outcome.given is not None else outcome.how.startswith(kind)


def test_the_file_alone_gives_the_numbers(tmp_path: Path) -> None:
    result = fitted(tmp_path, ALL)
    far = measure("latency", result.machine, {"footprint": "4GiB"})
    assert [r.value for r in far] == pytest.approx([80e-9, 140e-9], rel=1e-3)
    (read,) = [
        r.value
        for r in measure("bandwidth", result.machine, {"kernel": "read", "threads": "all", "footprint": "4GiB"})
        if r.metric == "bandwidth_net"
    ]
    assert read == pytest.approx(200e9, rel=0.01)


def test_every_number_of_the_file_states_whether_it_was_given_fitted_or_assumed(tmp_path: Path) -> None:
    few, complete = fitted(tmp_path, TWO).machine, fitted(tmp_path, ALL).machine
    assert few.origins["links.socket.bandwidth_gb_per_s"].kind == "assumed"
    assert complete.origins["links.socket.bandwidth_gb_per_s"].kind == "fitted"
    assert complete.origins["links.socket.bandwidth_gb_per_s"].text == "link 35.00 GB/s, --link"
    assert (complete.origins["cpu.clock_ghz"].kind, complete.number("cpu.clock_ghz")) == ("published", 2.4)
    assert len(complete.uncertain_keys()) < len(few.uncertain_keys())


def test_an_assumed_number_makes_assumed_parameters(tmp_path: Path) -> None:
    numbers = {n: KeyNumber(v, "--x", assumed=n == "idle-local") for n, v in ONE.items()}
    result = fit_numbers(KeyNumbers(1, numbers), "made", tmp_path)
    assert result.machine.origins["memory.access_ns"].kind == "assumed"
    assert result.machine.origins["memory.channel_gb_per_s"].kind == "fitted"
    assert {o.name: o.how.split(":")[0] for o in result.outcomes}["idle-local"] == "assumed"


@pytest.mark.parametrize("cores", [128, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_large_socket_is_one_node(tmp_path: Path, cores: int) -> None:
    result = fitted(tmp_path, {**TWO, "cores": cores})
    assert result.machine.data["node"]["cpus"] == cores // 2
    threads = f"{cores // 4},{cores // 2}"
    rates = measure("bandwidth", result.machine, {"kernel": "read", "threads": threads, "footprint": "4GiB"})
    rates_of_half = [r.value for r in rates if r.metric == "bandwidth_net"]
    assert rates_of_half == pytest.approx(
        [100e9, 100e9], rel=0.01
    )  # the bandwidth of one socket, also if only half of its cores read
    latencies = measure("latency", result.machine, {"footprint": "4GiB"})
    assert [r.value for r in latencies] == pytest.approx([80e-9, 140e-9], rel=1e-3)


def test_a_number_that_cannot_be_met_has_a_warning_and_the_nearest_value(tmp_path: Path) -> None:
    result = fitted(tmp_path, {**ONE, "triad": 39e9})
    (triad,) = [o for o in result.outcomes if o.name == "triad"]
    assert triad.model == pytest.approx(30e9, rel=0.01) and "give at most 30.00 GB/s" in triad.warning
    assert "--store streaming" in triad.warning and triad.how == "nearest: memory.turnaround_ns"
    streaming = fitted(tmp_path, {**ONE, "triad": 39e9}, "streaming")
    assert not any(o.warning for o in streaming.outcomes)


def test_a_transfer_that_is_faster_than_the_way_is_reported() -> None:
    assert conflicts(numbers({**TWO, "transfer": 67e-9})) == {
        "transfer": "the way there and back alone takes 68.00 ns by the idle latencies"
    }
    assert not conflicts(numbers({**TWO, "transfer": 69e-9}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**TWO, "cores": 31}, "--cores: found 31; allowed: an even number up to 1024"),
        ({**TWO, "cores": 2000}, "--cores: found 2000; allowed: 1 to 1024"),
        ({**ONE, "cores": 600}, "--cores: found 600; allowed: a number up to 512"),
        ({**TWO, "idle-remote": 79e-9}, "--idle-remote: found 79.00 ns; allowed: at least --idle-local, 80.00 ns"),
        ({**ONE, "read": 2e12}, "--read: found 2.000 TB/s; allowed: at most 1.748 TB/s, 256 lines on their way"),
        ({**ONE, "read": 0}, "--read: found 0 B/s; allowed: 100.0 MB/s to 100.0 TB/s"),
        ({**ONE, "core-read": 4e9}, "--read: found 40.00 GB/s; allowed: at most 32.00 GB/s, --core-read times 8 cores"),
        ({**ONE, "core-read": 41e9}, "--core-read: found 41.00 GB/s; allowed: at most 40.00 GB/s, the --read"),
        ({**ONE, "link": 4e9}, "--link: found 4.000 GB/s of a machine with one socket"),
        ({**TWO, "link": 101e9}, "--link: found 101.0 GB/s; allowed: at most 100.0 GB/s"),
        ({**TWO, "triad": 301e9}, "--triad: found 301.0 GB/s; allowed: at most 300.0 GB/s"),
        ({**TWO, "loaded": 79e-9}, "--loaded: found 79.00 ns; allowed: at least --idle-local"),
        ({**TWO, "loaded": 9e-6}, "--loaded: found 9.000 µs; allowed: at most 2.621 µs, 256 lines"),
        ({**TWO, "clock": 1e6}, "--clock: found 0.001 GHz; allowed: 0.1 GHz to 20 GHz"),
        ({**ONE, "cores": 1, "transfer": 5e-8}, "--transfer: found 50.00 ns of a machine with one core"),
    ],
)
def test_impossible_numbers_are_refused_in_one_line(given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as error:
        check(numbers(given))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_machine_file_can_be_extended_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "made.toml").write_text(fitted(tmp_path, ONE).text)
    data = tomllib.loads((tmp_path / "made.toml").read_text())
    assert data["format"] == 1 and data["title"] == "made: 1 socket of 8 cores, from key numbers"
    assert show("clock", 2.4e9) == "2.4 GHz"
