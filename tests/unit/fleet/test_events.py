"""The events in the journal of a campaign name nodes, and a damaged event is refused when it is read."""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.fleet.campaigns.events import EVENTS, BeginEvent, EndedEvent, EndEvent, SubmittedEvent, SubmittingEvent
from meshmark.values.inputs import checked

BEGIN = {"plan": "abc", "kind": "check", "limit_s": 60.0, "engine": "slurm", "nodes": "n[1-3]", "cluster": "hawk"}


def begin(**changes: Any) -> BeginEvent:
    return checked(BeginEvent, {**BEGIN, **changes}, "j:1", MeshmarkError)


def test_each_node_measures_alone_unless_there_are_groups() -> None:
    assert begin().members("j:1") == {"n1": ("n1",), "n2": ("n2",), "n3": ("n3",)}
    assert begin(groups={}).members("j:1") == begin().members("j:1")
    groups = {"r0+n1+n2": ["n1", "n2"], "r12+n3+n1": ["n3", "n1"]}
    assert begin(groups=groups).members("j:1") == {"r0+n1+n2": ("n1", "n2"), "r12+n3+n1": ("n3", "n1")}


@pytest.mark.parametrize(
    ("group", "nodes"),
    [
        ("r1+n1+n2", ["n2", "n1"]),
        ("r1+n1", ["n1", "n2"]),
        ("r+n1+n2", ["n1", "n2"]),
        ("r٣+n1+n2", ["n1", "n2"]),
        ("r²+n1+n2", ["n1", "n2"]),
        ("x1+n1+n2", ["n1", "n2"]),
        ("1+n1+n2", ["n1", "n2"]),
        ("", []),
        ("../x", ["n1"]),
    ],
)
def test_a_group_is_named_for_its_round_and_its_nodes(group: str, nodes: list[str]) -> None:
    with pytest.raises(MeshmarkError, match=r"^j:1: groups: found .*; allowed: pairs such as r1\+n1\+n2"):
        begin(groups={group: nodes}).members("j:1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": "n[1-"}, "^j:1: nodes: found 'n"),
        ({"groups": {"r1+a;b+c": ["a;b", "c"]}}, "^j:1: groups: found 'a;b'"),
    ],
)
def test_names_that_no_node_may_have_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeshmarkError, match=message) as failure:
        begin(**changes).members("j:1")
    assert not isinstance(failure.value, UsageError)


def test_keys_that_may_be_missing_have_their_defaults() -> None:
    event = begin()
    assert (event.groups, event.confirms, event.scratch, event.beside) == (None, "", "", False)
    assert checked(EndedEvent, {"job": "j1"}, "j:2").counts is True


@pytest.mark.parametrize(
    ("kind", "event", "message"),
    [
        (BeginEvent, {**BEGIN, "plan": "../x"}, "plan: found '../x'"),
        (BeginEvent, {**BEGIN, "cluster": "a/b"}, "cluster: found 'a/b'"),
        (BeginEvent, {**BEGIN, "kind": ""}, "kind: found ''"),
        (BeginEvent, {**BEGIN, "engine": "a\nb"}, "engine: "),
        (BeginEvent, {**BEGIN, "limit_s": -1.0}, r"limit_s: found -1\.0"),
        (BeginEvent, {**BEGIN, "limit_s": 1e9}, "limit_s: found 1000000000"),
        (BeginEvent, {**BEGIN, "scratch": "x" * 4097}, "scratch: "),
        (SubmittingEvent, {"job": "-x", "nodes": "n1"}, "job: found '-x'"),
        (SubmittingEvent, {"job": "j", "nodes": {"n1": 1}}, "nodes: found {'n1': 1}"),
        (SubmittedEvent, {"job": "j", "id": "--all"}, "id: found '--all'"),
        (SubmittedEvent, {"job": "j"}, "id"),
        (EndEvent, {"left": {"n1": ["x"]}}, "left"),
    ],
)
def test_a_damaged_event_is_refused_with_its_key(kind: type[Any], event: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^j:1: .*{message}"):
        checked(kind, event, "j:1")


def test_a_job_id_may_be_any_text_that_is_not_an_option() -> None:
    for text in ("", "1234.server", "a-b", "x\ny", "ssh n1 -x"):
        assert checked(SubmittedEvent, {"job": "j", "id": text}, "j:1").id == text


def test_a_job_is_for_nodes_or_for_groups() -> None:
    assert checked(SubmittingEvent, {"job": "j", "nodes": "n[1-2]"}, "j:1").names() == ["n1", "n2"]
    assert checked(SubmittingEvent, {"job": "j", "nodes": ["r1+a+b"]}, "j:1").names() == ["r1+a+b"]
    with pytest.raises(UsageError, match=r"^job j: nodes: found "):
        checked(SubmittingEvent, {"job": "j", "nodes": "n["}, "j:1").names()


def test_the_events_have_their_words() -> None:
    assert {word: kind.__name__ for word, kind in EVENTS.items()} == {
        "submitting": "SubmittingEvent",
        "submitted": "SubmittedEvent",
        "ended": "EndedEvent",
        "end": "EndEvent",
    }
