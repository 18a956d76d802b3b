"""One sentence reports oversubscribed CPUs: how many threads run on which CPUs, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.watch.findings.findings import Findings, frame_json
from meshmark.watch.findings.oversubscription import HELD, KEPT, Oversubscription
from meshmark.watch.frames import Frame, FrameMetric, Header, frame_of


def made(cpus: int, **more: Any) -> Oversubscription:
    components = {"cpu": tuple({"name": f"CPU {n}", "number": n, **more} for n in range(cpus)), "host": ({},)}
    return Oversubscription(Header("host", "m", "2026", 1.0, components, (FrameMetric("host.running", "1", "tasks"),)))


def tick(n: int, running: float | None, *programs: dict[str, Any]) -> Frame:
    return Frame(n, float(n), 1.0, {"host.running": [running]}, processes=list(programs))


def program(pid: int, allowed: object, *threads: tuple[float, float | None, int]) -> dict[str, Any]:
    busiest = [{"tid": pid + i, "cpu": cpu, "waiting": w, "on": node} for i, (cpu, w, node) in enumerate(threads)]
    return {"pid": pid, "name": f"p{pid}", "cpu": sum(t[0] for t in threads), "allowed": allowed, "busiest": busiest}


def said(follower: Oversubscription, *frames: Frame) -> list[str]:
    return [str(follower.add(frame) or "") for frame in frames]


def test_it_says_how_many_threads_are_on_which_cpus_since_when_and_who() -> None:
    frames = [tick(n, 9, program(7, "0-1", (0.5, 0.5, 0))) for n in range(1, HELD + 1)]
    sentences = said(made(2), *frames)
    assert sentences[:-1] == [""] * (HELD - 1)
    assert sentences[-1] == "CPUs oversubscribed: 8.0 runnable threads on 2 CPUs (0-1), since 1.00 s; busiest: p7 (7)"


def test_it_stops_when_it_is_over_and_begins_anew() -> None:
    follower = made(2)
    output = said(follower, *(tick(n, 9) for n in range(1, 9)))
    quiet = said(follower, *(tick(n, 2) for n in range(9, 17)))
    assert output[-1] and quiet[0] and not any(quiet[KEPT - HELD :])
    assert "since 17.0 s" in said(follower, *(tick(n, 9) for n in range(17, 22)))[-1]


def test_one_thread_per_cpu_beside_the_sampler_is_not_too_many() -> None:
    assert not any(said(made(4), *(tick(n, 5) for n in range(1, 12))))
    assert any(said(made(4), *(tick(n, 6) for n in range(1, 12))))


def test_bursts_of_single_ticks_are_not_reported() -> None:
    assert not any(said(made(2), *(tick(n, 9 if n % 2 else 1) for n in range(1, 30))))


def test_threads_that_share_few_cpus_of_an_idle_machine_are_reported() -> None:
    many_ranks = program(7, "3", (0.5, 0.5, 3), (0.5, 0.5, 3))
    sentence = said(made(64), *(tick(n, 3, many_ranks) for n in range(1, 6)))[-1]
    assert sentence == "CPUs oversubscribed: 2.0 runnable threads on 1 CPU (3), since 1.00 s; busiest: p7 (7)"


def test_threads_that_are_bound_elsewhere_or_do_not_wait_are_not_reported() -> None:
    leader_bound = program(7, "0", *((1.0, 0.0, cpu) for cpu in range(8)))
    unknown_waiting = program(9, "1", (0.5, None, 1), (0.5, None, 1), (0.5, None, 1))
    assert not any(said(made(64), *(tick(n, 9, leader_bound, unknown_waiting) for n in range(1, 12))))


@pytest.mark.parametrize("allowed", [None, "x", "9-1", 5, ["0"], "0-99999999"])
def test_damaged_programs_of_a_recording_are_passed_over(allowed: object) -> None:
    finding = {"pid": 1, "name": "\x1b[2J", "allowed": allowed, "busiest": [None, {"cpu": "x", "on": 0}], "cpu": None}
    sentences = said(made(2), *(tick(n, 9, finding) for n in range(1, 6)))
    assert sentences[-1].isprintable() and "8.0 runnable threads on 2 CPUs" in sentences[-1]


def test_streams_without_a_run_queue_or_with_odd_numbers_say_nothing() -> None:
    assert not any(said(made(2), *(tick(n, None) for n in range(1, 9))))
    assert "(0-1)" in said(made(2, number="x"), *(tick(n, 9) for n in range(1, 9)))[-1]
    assert not any(said(made(0), *(tick(n, 9) for n in range(1, 9))))


def test_only_crowded_cpus_of_a_machine_with_others_are_marked_on_the_map() -> None:
    many_ranks = program(7, "3", (0.5, 0.5, 3), (0.5, 0.5, 3))
    narrow, all_ = made(64), made(2)
    for n in range(1, 6):
        partial, complete = narrow.add(tick(n, 3, many_ranks)), all_.add(tick(n, 9))
    assert partial and partial.to_json()["components"] == [3] and partial.to_json()["culprits"] == ["p7 (7)"]
    assert complete and complete.to_json()["components"] == [] and complete.to_json()["verdict"] == "oversubscribed"


def test_frames_as_json_carry_the_sentence_and_are_frames_again() -> None:
    components = {"cpu": ({"name": "CPU 0", "number": 0},), "host": ({},)}
    header = Header("host", "m", "2026", 1.0, components, (FrameMetric("host.running", "1", "tasks"),))
    findings = Findings(header)
    lines = [frame_json(frame, findings.add(frame)) for frame in (tick(n, 5) for n in range(1, 6))]
    assert "spots" not in lines[0]
    assert [spot["text"] for spot in lines[-1]["spots"]] == [
        "CPUs oversubscribed: 4.0 runnable threads on 1 CPU (0), since 1.00 s"
    ]
    assert frame_of(lines[-1], header) == tick(5, 5)
