"""Writes sentences about the measured or predicted number of tokens a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshmark.machine.topology import Topology
from meshmark.measure.llm import AvailableMemory, LlmRequest, SettingResult, best_of
from meshmark.store.record import Record
from meshmark.values.units import NBSP, counted, number, percent, plain, round_size

_WHERE: Final = {
    "one-node": "all weights on node {node} (one-node)",
    "interleave": "pages interleaved over all nodes (interleave)",
    "local": "the weights of each thread on its own node (local)",
    "mirror": "a copy of the weights on every node (mirror)",
}
_BOUND: Final = 0.9  # from this share of the read bandwidth on, bandwidth alone is called the limit
_MOSTLY: Final = 0.6
_NAMED: Final = 3  # number of settings that a sentence names


def setting_text(point: SettingResult) -> str:
    """Return placement and threads of a setting as text, and its page size unless it is the default."""
    placement_text = _WHERE[point.placement].format(node=point.condition("memory_node"))
    threads = point.tokens.conditions["threads"]
    assert isinstance(threads, int)
    pages = point.condition("pages")
    return f"{placement_text}, {counted(threads, 'thread')}" + (f", pages of {pages}" if pages != "thp" else "")


def measured_answer(
    measured: Sequence[SettingResult],
    weights_bytes: int,
    compared: Sequence[SettingResult],
    trial_bytes: int,
    topology: Topology,
) -> list[str]:
    """Return the answer for a size of weights that was measured, as sentences; the first sentence states the rate.

    Args:
        measured: Settings that were measured with this size, at least one.
        weights_bytes: Size of the weights in bytes.
        compared: Settings that were compared with the weights of the trial; empty without a trial.
        trial_bytes: Size of the weights of the trial.
        topology: Topology of the machine.
    """
    best, other_points, word = best_of(measured)
    lines = [f"{_size(weights_bytes)} of weights: {_rate(best.tokens)} with {setting_text(best)}."]
    if len(measured) > 1:
        lines.append(_rank_text(other_points, word, len(measured)))
    elif len(compared) > 1:
        others_text = counted(len(compared) - 1, "other setting")
        lines.append(f"Measured with the best setting only: {others_text} did worse with {_size(trial_bytes)}.")
    lines.append(_limit_text(best))
    caches = _last_level_bytes(topology)
    if weights_bytes < 2 * caches:
        lines.append(
            f"The last-level caches of {plain(caches, 'B')} hold much of these weights: larger ones are slower."
        )
    return lines + _flag_lines([best.tokens, best.read])


def predictions(trial: Sequence[SettingResult], weights_bytes: int, memory: AvailableMemory) -> list[dict[str, str]]:
    """Return a row for each setting: the rate that the trial predicts for larger weights, and whether they fit."""
    rows = []
    for point in trial:
        bounds = point.read.bounds
        interval = "–" if bounds is None else " to ".join(number(b / weights_bytes) for b in bounds)
        rows.append(
            {
                "placement": point.placement,
                "threads": point.condition("threads"),
                "pages": point.condition("pages"),
                "predicted tokens/s": number(point.read.value / weights_bytes),
                "95 % interval": interval,
                "measured read bandwidth": plain(point.read.value, "B/s", 3),
                f"memory for {_size(weights_bytes)}": memory.lacks(point, weights_bytes) or "fits",
            }
        )
    return rows


def predicted_answer(
    trial: Sequence[SettingResult], weights_bytes: int, request: LlmRequest, memory: AvailableMemory, reason: str
) -> list[str]:
    """Return the answer for a size of weights that was not measured, as sentences; the first sentence states the rate.

    Args:
        trial: Settings that were measured with the weights of the trial, at least one.
        weights_bytes: Size of the weights in bytes.
        request: What was asked for, with the size of the trial.
        memory: The available memory.
        reason: Why the size was not measured.
    """
    fitting = [p for p in trial if not memory.lacks(p, weights_bytes)]
    best, other_points, word = best_of(fitting or trial, "read")
    value = best.read.value / weights_bytes
    size, measured = _size(weights_bytes), _size(request.trial_bytes)
    rate = f"{number(value)} tokens/s{_bounds_text(best.read, weights_bytes)}"
    proviso = "" if fitting else ", if the memory were large enough"
    lines = [
        f"{size} of weights: {rate} predicted with {setting_text(best)}{proviso}.",
        f"This is a prediction, since the size was not measured: {reason}.",
    ]
    if len(fitting or trial) > 1:
        lines.append(_rank_text(other_points, word, len(fitting or trial)))
    lines += [
        f"It assumes that each token reads all {size} once, as fast as these threads read the {measured} that were "
        f"measured: {plain(best.read.value, 'B/s', 3)}.",
        f"With {measured}, the load itself reached {_percent(best.share)} of this bandwidth, which would give "
        f"{number(best.share * value)} tokens/s.",
    ]
    if request.cached:
        lines.append(f"There is memory for {measured} only, part of which caches may hold: the rate may be too high.")
    return lines + _flag_lines([best.read])


def _rate(tokens: Record) -> str:
    return f"{number(tokens.value)} tokens/s{_bounds_text(tokens, 1)}"


def _bounds_text(record: Record, divisor: int) -> str:
    """Return the interval of a record over a divisor, in parentheses, or why there is no interval."""
    if record.bounds is None:
        return f" (no interval: {counted(len(record.samples), 'sample')})"
    return " (95 %: {} to {})".format(*(number(b / divisor) for b in record.bounds))


def _rank_text(others: Sequence[SettingResult], word: str, settings: int) -> str:
    """Return a sentence that compares the best setting with the others."""
    if not others:
        return f"It is the best of {settings} settings."
    settings_text = "; ".join(setting_text(p) for p in others[:_NAMED])
    more_text = f"; and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    relation = "Equal within 2 %" if word == "equal" else "Not shown to be slower"
    return f"{relation}: {settings_text}{more_text}."


def _limit_text(point: SettingResult) -> str:
    share = point.share
    if share >= _BOUND:
        limit = "the memory bandwidth of these threads limits it"
    elif share >= _MOSTLY:
        limit = (
            "their memory bandwidth limits it for the most part; the rest is arithmetic, and waiting of the "
            "threads for each other"
        )
    else:
        limit = "memory bandwidth does not limit it: arithmetic does, or the threads wait for each other"
    return (
        f"It reads its weights at {plain(point.weights.value, 'B/s', 3)}, {_percent(share)} of the "
        f"{plain(point.read.value, 'B/s', 3)} at which the same threads only read them: {limit}."
    )


def _percent(share: float) -> str:
    return percent(share).replace(NBSP, " ")


def _size(value: int) -> str:
    return round_size(value).replace(NBSP, " ")


def _flag_lines(records: Sequence[Record]) -> list[str]:
    flags = sorted(frozenset().union(*(r.flags for r in records)))
    return [f"The result is flagged ({', '.join(flags)}): repeat it before you rely on it."] if flags else []


def _last_level_bytes(topology: Topology) -> int:
    """Return the total size of the last-level caches, in B; 0 if unknown."""
    level = max((c.level for c in topology.caches), default=0)
    return sum(c.size_bytes or 0 for c in topology.caches if c.level == level)
