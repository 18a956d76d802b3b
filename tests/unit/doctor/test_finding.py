"""Each finding is on one line, and the worst come first."""

from __future__ import annotations

from meshmark.doctor.finding import HostFinding, in_order


def test_the_worst_come_first_and_among_equals_those_with_a_command() -> None:
    verdicts = ("ok", "hidden", "wrong", "unknown", "spoils-measurements")
    findings = [
        HostFinding(f"{verdict}{command}", "x", verdict, "y", command) for verdict in verdicts for command in ("", "c")
    ]
    names = [finding.name for finding in in_order(findings)]
    worst = ("wrong", "spoils-measurements", "hidden", "unknown", "ok")
    assert names == [f"{verdict}{command}" for verdict in worst for command in ("c", "")]


def test_a_finding_has_no_line_breaks_or_control_characters() -> None:
    (finding,) = in_order([HostFinding("a", " two\n\x1b[1m lines\0 ", "ok", "y", "run\n  this")])
    assert (finding.value, finding.command, finding.verdict) == ("two [1m lines", "run this", "ok")
    (long,) = in_order([HostFinding("a", "x" * 500, "wrong", "y")])
    assert long.value == "x" * 400


def test_a_finding_without_anything_readable_is_unknown() -> None:
    (finding,) = in_order([HostFinding("a", "\0\n", "wrong", "y", "command")])
    assert finding.to_json() == {
        "name": "a",
        "found": "nothing readable",
        "judged": "unknown",
        "why": "y",
        "command": "",
    }
