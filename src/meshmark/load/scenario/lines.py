"""Read and validate the lines of a run's journal; a damaged line is skipped as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.store.files import read_json
from meshmark.store.session import whole_lines

Test = Callable[[Any], bool]
_LIMIT: Final = 1 << 63
_MAX_S: Final = 1e7  # duration of a run; charts allocate memory in proportion


def is_number(value: object) -> bool:
    """Return whether a value of JSON is a number, not a boolean, within the limits of a journal."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LIMIT < value < _LIMIT


def _time(value: object) -> bool:
    return is_number(value) and -_MAX_S <= value <= _MAX_S  # type: ignore[operator]


def is_count(value: object) -> bool:
    """Return whether a value of JSON is a non-negative integer, not a boolean, within the limits of a journal."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LIMIT < value < _LIMIT


def _text(value: object) -> bool:
    return isinstance(value, str)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def _by_node(value: object) -> bool:
    return isinstance(value, dict) and all(len(k) <= 6 and k.isdecimal() and is_count(v) for k, v in value.items())


def _thread_samples(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(x, list)
        and len(x) == 7
        and isinstance(x[1], str)
        and all(type(n) is int and -1 <= n < _LIMIT for n in (x[0], *x[2:]))
        for x in value
    )


_COPY: Final[dict[str, Test]] = {"program": _text, "copy": is_count}
_PARTS: Final = dict.fromkeys(("user_s", "system_s", "waiting_s", "sleeping_s"), _time)
_TASK: Final[dict[str, Test]] = {**_COPY, "thread": is_count, "pid": is_count, "tid": is_count, "command": _text}
_REQUIRED: Final[Mapping[str, Mapping[str, Test]]] = {
    "event": {"event": _text, "t_s": _time},
    "thread": {**_TASK, "t_s": _time},
    "sample": {"t_s": _time, "threads": _thread_samples},
    "thread_total": {**_TASK, **_PARTS, "from_s": _time, "to_s": _time, "migrations": _whole, "cpus": _text},
    "pages": {**_COPY, "pid": is_count, "bytes": _by_node},
    "canary": {"t_s": _time, "when": _text, "load_latency_s": is_number},
    "window": {**_COPY, "from_s": _time, "to_s": _time},
    "done": _COPY,
    "total": {**_COPY, "how": _text},
}
_ENDED: Final[dict[str, Test]] = {
    **_PARTS,
    "released_s": _time,
    "ended_s": _time,
    "unseen_s": _time,
    "threads": is_count,
    "migrations": _whole,
    "largest_bytes": is_count,
}
_OPTIONAL: Final[dict[str, Test]] = {
    "t_s": _time,
    **_COPY,
    "pid": is_count,
    "status": _whole,
    "signal": _whole,
    "reason": _text,
    "pages": _by_node,
    "setup_s": _time,
}
_SUMS: Final = ("done", "window")  # lines whose values are all numbers, except for the keys in _NO_SUMS
_NO_SUMS: Final = frozenset({"type", "program", "wrong"})
_STATUSES: Final = ("ok", "timeout", "stopped")


def journal_lines(journal: Path, skipped: tuple[bytes, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the valid lines of a journal, except those that start with one of the prefixes in `skipped`."""
    for raw in whole_lines(journal):
        if raw.startswith(skipped):
            continue
        try:
            line = json.loads(raw)
            if b"\\u" in raw:
                json.dumps(line, ensure_ascii=False).encode()  # refuses lone surrogates, which cannot be shown
        except (ValueError, RecursionError):
            continue
        if not isinstance(line, dict) or not isinstance(kind := line.get("type"), str):
            continue
        if kind == "header":
            yield _header(line)
        elif kind == "end":
            yield _end(line)
        elif _fits(kind, line):
            yield line


def _fits(kind: str, line: Mapping[str, Any]) -> bool:
    required = _REQUIRED.get(kind, {})
    if kind == "total" and line.get("how") != "failed":
        required = {**required, **_ENDED}
    if not all(key in line and test(line[key]) for key, test in required.items()):
        return False
    if kind in _SUMS:
        wrong_results = line.get("wrong", [])
        if not isinstance(wrong_results, list) or not all(is_number(v) for k, v in line.items() if k not in _NO_SUMS):
            return False
    return all(test(line[key]) for key, test in _OPTIONAL.items() if key in line and key not in required)


def _header(line: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("machine", "scenario", "start", "build", "compiler")
    copies = line.get("programs")
    sample_s: Any = line.get("sample_s")
    header = {
        **line,
        **{k: line[k] if isinstance(line[k], str) else "" for k in texts if k in line},
        "sample_s": float(sample_s) if _time(sample_s) and sample_s > 0 else 0.1,
        "conditions": _scalars(line.get("conditions")),
        "programs": [p for p in copies if _is_copy(p)] if isinstance(copies, list) else [],
    }
    if not _time(header.get("t_s", 0.0)):
        del header["t_s"]
    return header


def _scalars(value: object) -> dict[str, Any]:
    """Return the entries whose values are valid for conditions."""
    entries = value.items() if isinstance(value, dict) else ()
    return {k: v for k, v in entries if v is None or isinstance(v, str | bool) or is_number(v)}


def _is_copy(value: object) -> bool:
    return isinstance(value, dict) and all(k in value and test(value[k]) for k, test in _COPY.items())


def _end(line: Mapping[str, Any]) -> dict[str, Any]:
    machine, sampling = line.get("machine"), line.get("sampling")
    end = {
        "type": "end",
        "status": line["status"] if line.get("status") in _STATUSES else "cut",
        "machine": {k: v for k, v in machine.items() if _numbers(v)} if isinstance(machine, dict) else {},
        "sampling": {k: v for k, v in sampling.items() if is_number(v)} if isinstance(sampling, dict) else {},
    }
    end.update({k: line[k] for k in ("t_s", "bench_s") if _time(line.get(k))})
    end.update({k: line[k] for k in ("signal", "samples") if is_count(line.get(k))})
    return end


_MEMBER: Final[dict[str, Test]] = {
    "name": _text,
    "copies": is_count,
    "threads": is_count,
    "nice": _whole,
    "priority": _text,
    "policy": _text,
    "wait_policy": _text,
    "memory": _text,
    "application": _text,
    "configuration": _text,
}


def kept_scenario(path: Path) -> dict[str, Any]:
    """Return the scenario in a run's folder without damaged entries; empty if it cannot be read."""
    try:
        scenario = read_json(path)
        json.dumps(scenario, ensure_ascii=False).encode()
    except (MeshmarkError, UnicodeEncodeError, RecursionError):
        return {}
    if not isinstance(scenario, dict):
        return {}
    members = scenario.get("programs")
    texts = ("name", "policy", "available_cpus")
    return {
        **{k: v for k, v in scenario.items() if k not in texts or isinstance(v, str)},
        "programs": [p for p in members if _is_member(p)] if isinstance(members, list) else [],
    }


def _is_member(value: object) -> bool:
    if not isinstance(value, dict) or "name" not in value:
        return False
    starts = value.get("start_s")
    return all(test(value[k]) for k, test in _MEMBER.items() if k in value) and (starts is None or _numbers(starts))
