"""Estimates how many tokens a second a machine generates with a language model of a given size.

Each token reads all weights once, so the time per token is their size over the read bandwidth. If the weights are far
larger than the caches, a smaller size is measured first. This trial yields the bandwidth of every placement and the
preparation time per byte. The requested size is then measured if it fits into memory and budget; otherwise its rate is
predicted from the bandwidth of the trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.describe import description
from meshmark.errors import AbsentError, UsageError
from meshmark.machine.memory import group_available_bytes, machine_available_bytes, node_available_bytes
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree, parse_list
from meshmark.measure.runs.plan import replaced
from meshmark.measure.runs.probe import planned
from meshmark.measure.runs.runner import StepResult
from meshmark.statistics.verdicts import MedianEstimate, rank
from meshmark.store.record import Record
from meshmark.values import grammar
from meshmark.values.units import plain

NAME: Final = "llm"
WEIGHTS: Final = "--weights"
PLACEMENT: Final = "--placement"
ONE_NODE: Final = "one-node"
USABLE: Final = 0.9  # share of the available memory that the instrument uses
PASSES: Final = (
    7  # one token without a sample, and enough samples for an interval; each sample also reads the weights once
)
_SMALLEST: Final = 1 << 20  # smallest weights, B
_POOLS: Final = ("2MiB", "1GiB")  # page sizes whose memory the kernel reserves in advance


@dataclass(frozen=True, slots=True)
class SettingResult:
    """The results of one setting with one size of the weights.

    Attributes:
        tokens: Record of the token rate.
        weights: Record of the bandwidth at which the load reads the weights.
        read: Record of the bandwidth at which the same threads only read.
        nodes: NUMA nodes of the CPUs that were used.
    """

    tokens: Record
    weights: Record
    read: Record
    nodes: tuple[int, ...]

    def condition(self, name: str) -> str:
        """Return a condition of the measurement as text; `None` if it was not stated."""
        return str(self.tokens.conditions.get(name))

    @property
    def weights_bytes(self) -> int:
        """Return the size of the weights in B; 0 if it was not stated."""
        return int(self.tokens.conditions["weights_bytes"] or 0)

    @property
    def placement(self) -> str:
        """Return the placement of the weights on nodes."""
        return self.condition("placement")

    @property
    def share(self) -> float:
        """Return the bandwidth of the load over the bandwidth at which the same threads only read the same weights."""
        return self.weights.value / self.read.value if self.read.value else math.nan

    @property
    def copies(self) -> int:
        """Return the number of copies of the weights: one per node if they are mirrored, otherwise one."""
        return len(self.nodes) if self.placement == "mirror" else 1

    def argv(self, argv: Sequence[str], weights_bytes: int) -> list[str]:
        """Return the arguments that measure only this setting with another size of the weights."""
        setting = {WEIGHTS: str(weights_bytes), PLACEMENT: self.placement}
        setting |= {option: self.condition(option[2:]) for option in ("--threads", "--pages")}
        if self.placement == ONE_NODE:
            setting["--memory-node"] = self.condition("memory_node")
        changed = list(argv)
        for option, value in setting.items():
            changed = replaced(changed, option, value)
        return changed


def points(records: Iterable[Record], topology: Topology) -> list[SettingResult]:
    """Return the measured settings, in order; modes of runs are left out."""
    metrics_by_point: dict[str, dict[str, Record]] = {}
    for record in records:
        key = "/".join(str(record.conditions.get(k)) for k in (*_SETTING, "weights_bytes"))
        metrics_by_point.setdefault(key, {})[record.metric] = record
    node_of = {cpu.os_index: cpu.node for cpu in topology.cpus}
    complete = [
        metrics
        for metrics in metrics_by_point.values()
        if metrics.keys() >= {"token_rate", "weights_bandwidth", "read_bandwidth"}
    ]
    return [
        SettingResult(
            metrics["token_rate"],
            metrics["weights_bandwidth"],
            metrics["read_bandwidth"],
            tuple(sorted({node_of.get(c) or 0 for c in parse_list(str(metrics["token_rate"].conditions["cpus"]))})),
        )
        for metrics in complete
    ]


_SETTING: Final = ("placement", "memory_node", "threads", "pages")


def of_size(measured: Iterable[SettingResult], weights_bytes: int, sizes: Sequence[int]) -> list[SettingResult]:
    """Return the points of a requested size; the instrument rounds the weights down to whole rows of every thread."""
    return [p for p in measured if min(sizes, key=lambda s: abs(s - p.weights_bytes)) == weights_bytes]


# ------------------------------------------------------------------ the request


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """The request on the command line.

    Attributes:
        argv: Arguments of the instrument.
        small: Sizes of the weights that are measured directly, in B.
        large: Sizes that need a trial first, in B.
        trial_bytes: Size of the weights of the trial, in B.
        cached: The trial is so small, for lack of memory, that caches may hold a part of its weights.
    """

    argv: tuple[str, ...]
    small: tuple[int, ...]
    large: tuple[int, ...]
    trial_bytes: int
    cached: bool = False

    @property
    def trial_sizes(self) -> tuple[int, ...]:
        """Return the sizes of weights in B that are measured first, ascending."""
        return tuple(sorted({*self.small, self.trial_bytes})) if self.large else self.small

    @property
    def trial_argv(self) -> list[str]:
        """Return the arguments of the trial and of the small sizes."""
        return replaced(self.argv, WEIGHTS, ",".join(map(str, self.trial_sizes)))


def request(argv: Sequence[str], memory: AvailableMemory) -> LlmRequest:
    """Check the arguments of the instrument and choose the sizes that are measured first.

    On a machine with a single memory node, where all placements are the same, only one placement is measured.

    Raises:
        UsageError: An argument is invalid.
        AbsentError: Not even the smallest weights fit into memory.
    """
    d = description(NAME)
    planned(d, argv)
    value_by_option = dict(itertools.pairwise(argv))
    default_bytes = planned(d, replaced(argv, WEIGHTS, "memory")).memory_bytes
    if default_bytes is None:
        raise UsageError(f"{NAME}: {WEIGHTS}: the instrument does not state how large weights must be")
    text = value_by_option.get(WEIGHTS, "memory")
    sizes = [default_bytes] if text == "memory" else grammar.sizes(WEIGHTS, text)
    if PLACEMENT not in value_by_option and len(memory.nodes) < 2:
        argv = [*argv, PLACEMENT, ONE_NODE]
    small = tuple(s for s in sizes if s <= min(default_bytes, memory.usable()))
    trial = default_bytes
    while trial > memory.usable():
        trial //= 2
    if trial < _SMALLEST:
        raise AbsentError(
            f"{NAME}: {memory.text()} leaves {plain(memory.usable(), 'B', 3)}, too little for any weights"
        )
    return LlmRequest(tuple(argv), small, tuple(s for s in sizes if s not in small), trial, trial < default_bytes)


# ------------------------------------------------------------------ memory


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """Memory that may be allocated, in B.

    Attributes:
        machine: Available memory of the machine.
        group: Memory that the limit of the control group leaves; None without a limit.
        nodes: Available memory of each NUMA node that has memory.
    """

    machine: int
    group: int | None
    nodes: Mapping[int, int]

    @staticmethod
    def from_topology(topology: Topology, root: Path = Path("/")) -> AvailableMemory:
        """Return the available memory of the machine, of the control group and of each node with memory.

        Args:
            topology: Topology of the machine.
            root: Root of the file system, or of a recorded tree.
        """
        tree = FileTree(root)
        machine = machine_available_bytes(tree)
        bytes_by_node = {
            n.os_index: node_available_bytes(tree, n.os_index) for n in topology.nodes if n.memory_bytes != 0
        }
        nodes = {node: machine if available is None else available for node, available in bytes_by_node.items()}
        return AvailableMemory(machine, group_available_bytes(tree), nodes)

    def usable(self, node: int | None = None) -> int:
        """Return the part of the available memory that may be used, of the machine or of one node, in B."""
        limits = [self.machine, *([] if self.group is None else [self.group])]
        if node is not None and len(self.nodes) > 1:
            limits.append(self.nodes.get(node, self.machine))
        return max(0, int(USABLE * min(limits)))

    def text(self) -> str:
        """Return what limits the memory of this process, as text."""
        return "the control group" if self.group is not None and self.group < self.machine else "this machine"

    def lacks(self, point: SettingResult, weights_bytes: int) -> str:
        """Return why weights do not fit with the placement of a point.

        Returns:
            The reason; "" if the weights fit, or if only the instrument can decide.
        """
        if point.condition("pages") in _POOLS:
            return ""
        needs = f"it needs {plain(weights_bytes, 'B', 3)}"
        if point.copies * weights_bytes > self.usable():
            copies = f" {point.copies} times" if point.copies > 1 else ""
            return f"{needs}{copies}, and {self.text()} has {plain(self.usable(), 'B', 3)} to use"
        memory_node = point.condition("memory_node")
        nodes = point.nodes if point.placement == "mirror" else [int(memory_node)] if memory_node.isdecimal() else []
        for node in nodes:
            if weights_bytes > self.usable(node):
                return f"{needs}, and node {node} has {plain(self.usable(node), 'B', 3)} to use"
        return ""


# ------------------------------------------------------------------ time


def prepare_s_per_byte(results: Iterable[StepResult]) -> float:
    """Return the time that a trial spent outside its samples (allocation, first touch, filling) per byte of weights."""
    elapsed = touched = 0.0
    for result in results:
        rates = [r for r in result.reading.records if r.metric == "token_rate"]
        elapsed += result.elapsed_s - sum(float(r.provenance.get("duration_s") or 0.0) for r in rates)
        touched += sum(float(r.conditions["weights_bytes"] or 0.0) for r in rates)
    return max(0.0, elapsed) / touched if touched else math.inf


def cost_s(point: SettingResult, weights_bytes: int, prepare_s: float) -> float:
    """Estimate the time to prepare weights and to take enough samples for an interval.

    Args:
        point: A setting that was measured with weights of another size.
        weights_bytes: Size of the weights in bytes.
        prepare_s: Preparation time per byte.
    """
    passes_s = PASSES * (1 / point.weights.value + 1 / point.read.value)
    return weights_bytes * (prepare_s * point.copies + passes_s)


@dataclass(frozen=True, slots=True)
class SettingChoice:
    """The settings that are measured with a large size.

    Attributes:
        points: Settings that fit into memory and budget; empty if none fits.
        runs: Number of fresh processes.
        needs_s: Budget with which at least the best setting would be measured; 0 if there is not enough memory.
    """

    points: tuple[SettingResult, ...]
    runs: int = 1
    needs_s: float = 0.0


def choose(
    trial: Sequence[SettingResult],
    weights_bytes: int,
    memory: AvailableMemory,
    prepare_s: float,
    rest_s: float,
    repetitions: int,
) -> SettingChoice:
    """Choose all settings that fit if the rest of the budget allows it, otherwise only the best setting of the trial.

    Args:
        trial: Settings that were measured with weights of another size.
        weights_bytes: Size of the weights in bytes.
        memory: The available memory.
        prepare_s: Preparation time per byte.
        rest_s: Rest of the budget in s.
        repetitions: Requested number of fresh processes; 0: up to 3, as the budget allows.
    """
    fitting = [p for p in trial if not memory.lacks(p, weights_bytes)]
    if not fitting:
        return SettingChoice(())
    least = repetitions or 1
    best = max(fitting, key=lambda p: p.tokens.value)
    for settings in (fitting, [best]):
        # The instrument gives every setting the same share of its budget.
        once_s = len(settings) * max(cost_s(p, weights_bytes, prepare_s) for p in settings)
        if once_s * least <= rest_s:
            return SettingChoice(tuple(settings), repetitions or min(3, int(rest_s / once_s)))
    return SettingChoice((), needs_s=1.6 * least * cost_s(best, weights_bytes, prepare_s))


# ------------------------------------------------------------------ the answer


def best_of(
    measured: Sequence[SettingResult], metric: str = "tokens"
) -> tuple[SettingResult, list[SettingResult], str]:
    """Return the best setting, the other settings that may be as good, and the verdict of `rank` on these.

    Flagged results are included, since all settings are measured in alternation on the same machine.
    """
    records: dict[str, Record] = {str(i): getattr(p, metric) for i, p in enumerate(measured)}
    ranked = rank({n: MedianEstimate(r.value, r.bounds) for n, r in records.items()}, better="higher")
    best_name = max(records, key=lambda n: records[n].value)
    other_points = [measured[int(n)] for n in ranked.best if n != best_name]
    return measured[int(best_name)], other_points, ranked.word
