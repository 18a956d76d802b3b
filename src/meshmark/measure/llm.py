"""Answers how many tokens a second a machine generates with a language model of a given size.

Each token reads all weights once, so their size over the bandwidth of reading is the time of a token. Weights that are
larger than the caches by far are first replaced by a smaller size, the trial, which shows the bandwidth of every
placement and the time that each byte needs for preparation. The requested size is then measured if it fits into memory
and budget; otherwise its rate is predicted from the bandwidth of the trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.describe import description
from meshmark.errors import AbsentError, UsageError
from meshmark.machine.memory import group_available_bytes, machine_available_bytes, node_available_bytes
from meshmark.machine.topology import Topology
from meshmark.machine.tree import Tree, parse_list
from meshmark.measure.plan import replaced
from meshmark.measure.probe import check
from meshmark.measure.runner import StepResult
from meshmark.store.record import Record
from meshmark.values import grammar
from meshmark.values.units import plain
from meshmark.values.verdicts import Measured, rank

NAME: Final = "llm"
WEIGHTS: Final = "--weights"
PLACEMENT: Final = "--placement"
ONE_NODE: Final = "one-node"
USABLE: Final = 0.9  # of the available memory, as the instrument uses it
PASSES: Final = (
    7  # a token without a sample, and samples enough for an interval; each sample also reads the weights once
)
_SMALLEST: Final = 1 << 20  # of the weights, B
_POOLS: Final = ("2MiB", "1GiB")  # page sizes whose memory the kernel reserves beforehand


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured with one setting and one size of the weights.

    Attributes:
        nodes: NUMA nodes of the CPUs that took part.
    """

    tokens: Record
    weights: Record
    read: Record
    nodes: tuple[int, ...]

    def condition(self, name: str) -> str:
        return str(self.tokens.conditions.get(name))

    @property
    def weights_bytes(self) -> int:
        return int(self.tokens.conditions["weights_bytes"] or 0)

    @property
    def placement(self) -> str:
        return self.condition("placement")

    @property
    def share(self) -> float:
        """Bandwidth of the load over the bandwidth at which the same threads only read the same weights."""
        return self.weights.value / self.read.value if self.read.value else math.nan

    @property
    def copies(self) -> int:
        return len(self.nodes) if self.placement == "mirror" else 1

    def argv(self, argv: Sequence[str], weights_bytes: int) -> list[str]:
        """The arguments that measure this setting alone with another size of the weights."""
        setting = {WEIGHTS: str(weights_bytes), PLACEMENT: self.placement}
        setting |= {option: self.condition(option[2:]) for option in ("--threads", "--pages")}
        if self.placement == ONE_NODE:
            setting["--memory-node"] = self.condition("memory_node")
        changed = list(argv)
        for option, value in setting.items():
            changed = replaced(changed, option, value)
        return changed


def points(records: Iterable[Record], topology: Topology) -> list[Point]:
    """The settings that were measured, in order; modes of runs are left out."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        key = "/".join(str(record.conditions.get(k)) for k in (*_SETTING, "weights_bytes"))
        found.setdefault(key, {})[record.metric] = record
    node_of = {cpu.os_index: cpu.node for cpu in topology.cpus}
    complete = [m for m in found.values() if m.keys() >= {"token_rate", "weights_bandwidth", "read_bandwidth"}]
    return [
        Point(
            m["token_rate"],
            m["weights_bandwidth"],
            m["read_bandwidth"],
            tuple(sorted({node_of.get(c) or 0 for c in parse_list(str(m["token_rate"].conditions["cpus"]))})),
        )
        for m in complete
    ]


_SETTING: Final = ("placement", "memory_node", "threads", "pages")


def of_size(measured: Iterable[Point], weights_bytes: int, sizes: Sequence[int]) -> list[Point]:
    """The points of a requested size; the instrument rounds the weights down to whole rows of every thread."""
    return [p for p in measured if min(sizes, key=lambda s: abs(s - p.weights_bytes)) == weights_bytes]


# ------------------------------------------------------------------ the request


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for.

    Attributes:
        argv: Arguments of the instrument.
        small: Sizes of the weights that are measured at once, in B.
        large: Sizes that need a trial first, in B.
        trial_bytes: Weights of the trial.
        cached: The trial is so small, for lack of memory, that caches may hold a part of it.
    """

    argv: tuple[str, ...]
    small: tuple[int, ...]
    large: tuple[int, ...]
    trial_bytes: int
    cached: bool = False

    @property
    def trial_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.small, self.trial_bytes})) if self.large else self.small

    @property
    def trial_argv(self) -> list[str]:
        """The arguments of the trial and of the small sizes."""
        return replaced(self.argv, WEIGHTS, ",".join(map(str, self.trial_sizes)))


def request(argv: Sequence[str], memory: Memory) -> Request:
    """Check the arguments of the instrument and choose the sizes to begin with.

    Placements are reduced to one on a machine whose memory has one node, where all of them are the same.

    Raises:
        UsageError: An argument is invalid.
        AbsentError: Not even the smallest weights fit into memory.
    """
    _check(argv)
    given = dict(itertools.pairwise(argv))
    enough = _check(replaced(argv, WEIGHTS, "memory")).get("memory_bytes")
    if not isinstance(enough, int):
        raise UsageError(f"{NAME}: {WEIGHTS}: the instrument does not say how large weights must be")
    text = given.get(WEIGHTS, "memory")
    sizes = [enough] if text == "memory" else grammar.sizes(WEIGHTS, text)
    if PLACEMENT not in given and len(memory.nodes) < 2:
        argv = [*argv, PLACEMENT, ONE_NODE]
    small = tuple(s for s in sizes if s <= min(enough, memory.usable()))
    trial = enough
    while trial > memory.usable():
        trial //= 2
    if trial < _SMALLEST:
        raise AbsentError(
            f"{NAME}: {memory.text()} leaves {plain(memory.usable(), 'B', 3)}, too little for any weights"
        )
    return Request(tuple(argv), small, tuple(s for s in sizes if s not in small), trial, trial < enough)


def _check(argv: Sequence[str]) -> Mapping[str, Any]:
    """Like `check`, but an error names the option as it was typed."""
    try:
        return check(NAME, argv)
    except UsageError as error:
        _, field, rest = str(error).split(": ", 2)
        option = next((p.option for p in description(NAME).parameters if p.name == field), field)
        raise UsageError(f"{NAME}: {option}: {rest}") from error


# ------------------------------------------------------------------ memory


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that may be allocated, in B.

    Attributes:
        group: What the limit of the control group leaves; None without a limit.
        nodes: By NUMA node with memory.
    """

    machine: int
    group: int | None
    nodes: Mapping[int, int]

    @staticmethod
    def of(topology: Topology, root: Path = Path("/")) -> Memory:
        tree = Tree(root)
        machine = machine_available_bytes(tree)
        own = {n.os_index: node_available_bytes(tree, n.os_index) for n in topology.nodes if n.memory_bytes != 0}
        nodes = {node: machine if b is None else b for node, b in own.items()}
        return Memory(machine, group_available_bytes(tree), nodes)

    def usable(self, node: int | None = None) -> int:
        """Nine tenths of what is available, of the whole or of a node."""
        limits = [self.machine, *([] if self.group is None else [self.group])]
        if node is not None and len(self.nodes) > 1:
            limits.append(self.nodes.get(node, self.machine))
        return max(0, int(USABLE * min(limits)))

    def text(self) -> str:
        """What limits the memory of this process."""
        return "the control group" if self.group is not None and self.group < self.machine else "this machine"

    def lacks(self, point: Point, weights_bytes: int) -> str:
        """Why weights do not fit with the placement of a point; "" if they do, or if only the instrument can tell."""
        if point.condition("pages") in _POOLS:
            return ""
        needs = f"it needs {plain(weights_bytes, 'B', 3)}"
        if point.copies * weights_bytes > self.usable():
            copies = f" {point.copies} times" if point.copies > 1 else ""
            return f"{needs}{copies}, and {self.text()} has {plain(self.usable(), 'B', 3)} to use"
        named = point.condition("memory_node")
        own = point.nodes if point.placement == "mirror" else [int(named)] if named.isdecimal() else []
        for node in own:
            if weights_bytes > self.usable(node):
                return f"{needs}, and node {node} has {plain(self.usable(node), 'B', 3)} to use"
        return ""


# ------------------------------------------------------------------ time


def prepare_s_per_byte(results: Iterable[StepResult]) -> float:
    """Time of a trial beside its samples, for each byte of weights: allocation, first touch and filling."""
    elapsed = touched = 0.0
    for result in results:
        rates = [r for r in result.reading.records if r.metric == "token_rate"]
        elapsed += result.elapsed_s - sum(float(r.provenance.get("duration_s") or 0.0) for r in rates)
        touched += sum(float(r.conditions["weights_bytes"] or 0.0) for r in rates)
    return max(0.0, elapsed) / touched if touched else math.inf


def cost_s(point: Point, weights_bytes: int, prepare_s: float) -> float:
    """Estimated time to prepare weights and to sample them often enough for an interval.

    Args:
        point: A setting, as measured with other weights.
        prepare_s: Time of preparation for a byte.
    """
    passes_s = PASSES * (1 / point.weights.value + 1 / point.read.value)
    return weights_bytes * (prepare_s * point.copies + passes_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a large size is measured.

    Attributes:
        points: Settings that fit into memory and budget; empty if none does.
        runs: Fresh processes.
        needs_s: Budget with which at least the best setting would be measured; 0 if memory is lacking.
    """

    points: tuple[Point, ...]
    runs: int = 1
    needs_s: float = 0.0


def choose(
    trial: Sequence[Point],
    weights_bytes: int,
    memory: Memory,
    prepare_s: float,
    rest_s: float,
    repetitions: int,
) -> Choice:
    """Choose all settings that fit if the rest of the budget allows it, otherwise the one that was best in the trial.

    Args:
        repetitions: Fresh processes as requested; 0: up to 3, as the budget allows.
    """
    fitting = [p for p in trial if not memory.lacks(p, weights_bytes)]
    if not fitting:
        return Choice(())
    least = repetitions or 1
    best = max(fitting, key=lambda p: p.tokens.value)
    for chosen in (fitting, [best]):
        # The instrument gives every setting the same share of its budget.
        once_s = len(chosen) * max(cost_s(p, weights_bytes, prepare_s) for p in chosen)
        if once_s * least <= rest_s:
            return Choice(tuple(chosen), repetitions or min(3, int(rest_s / once_s)))
    return Choice((), needs_s=1.6 * least * cost_s(best, weights_bytes, prepare_s))


# ------------------------------------------------------------------ the answer


def best_of(measured: Sequence[Point], metric: str = "tokens") -> tuple[Point, list[Point], str]:
    """The best setting, the others that may be as good, and what is known about these: the word of `rank`.

    Flagged results take part, since all of them are measured by turns on the same machine.
    """
    records: dict[str, Record] = {str(i): getattr(p, metric) for i, p in enumerate(measured)}
    ranked = rank({n: Measured(r.value, r.bounds) for n, r in records.items()}, better="higher")
    first = max(records, key=lambda n: records[n].value)
    others = [measured[int(n)] for n in ranked.best if n != first]
    return measured[int(first)], others, ranked.word
