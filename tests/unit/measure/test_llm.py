"""Tokens per second of a language model: what is measured, what is predicted, and how each answer reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.machine.memory import group_available_bytes, node_available_bytes
from meshmark.machine.sources import from_synthetic, from_sysfs
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree
from meshmark.measure.llm import AvailableMemory, SettingResult, best_of, choose, cost_s, of_size, points, request
from meshmark.measure.llm_answer import measured_answer, predicted_answer
from meshmark.store.record import Record
from support.cli import meshmark
from support.made_run import record

GB = 10**9
GIB = 2**30
TWO_NODES = from_synthetic("pack:2 [numa(memory=32GiB)] core:4 pu:1")
ROOMY = AvailableMemory(1000 * GB, None, {0: 500 * GB, 1: 500 * GB})


def setting(placement: str, threads: int, read: float, share: float = 0.95, size: int = 512 << 20) -> list[Record]:
    """Return the records of a setting on two nodes of four CPUs each."""
    conditions = {
        "weights_bytes": size,
        "placement": placement,
        "threads": threads,
        "cpus": f"0-{threads - 1}",
        "pages": "thp",
        "memory_node": 0 if placement == "one-node" else placement,
    }
    values = {"token_rate": share * read / size, "weights_bandwidth": share * read, "read_bandwidth": read}
    return [record("llm", metric, value, **conditions) for metric, value in values.items()]


def trial(topology: Topology = TWO_NODES) -> list[SettingResult]:
    records = [*setting("one-node", 8, 40 * GB), *setting("interleave", 8, 70 * GB), *setting("mirror", 8, 80 * GB)]
    return points(records, topology)


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("memory", "placement", "reason"),
    [
        (ROOMY, "mirror", ""),
        (AvailableMemory(100 * GB, None, {0: 50 * GB, 1: 50 * GB}), "interleave", ""),
        (AvailableMemory(100 * GB, None, {0: 40 * GB, 1: 50 * GB}), "one-node", "node 0"),
        (AvailableMemory(100 * GB, None, {0: 50 * GB, 1: 40 * GB}), "one-node", ""),
        (AvailableMemory(100 * GB, None, {0: 60 * GB, 1: 40 * GB}), "mirror", "node 1"),
        (AvailableMemory(80 * GB, None, {0: 50 * GB, 1: 50 * GB}), "mirror", "2 times, and this machine"),
        (AvailableMemory(100 * GB, 41 * GB, {0: 50 * GB, 1: 50 * GB}), "interleave", "the control group"),
    ],
)
def test_weights_must_fit_into_machine_group_and_node(memory: AvailableMemory, placement: str, reason: str) -> None:
    [point] = [p for p in trial() if p.placement == placement]
    reasons = memory.lacks(point, 40 * GB)
    assert reason in reasons and bool(reason) == bool(reasons)


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "9000", "a/memory.current": "2000"}),
        (
            "4:memory:/a\n1:cpu:/\n",
            {"memory/a/memory.limit_in_bytes": "9000", "memory/a/memory.usage_in_bytes": "2000"},
        ),
    ],
)
def test_limits_of_both_versions_of_control_groups_count(tmp_path: Path, groups: str, files: dict[str, str]) -> None:
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert group_available_bytes(FileTree(tmp_path)) == 7000
    assert group_available_bytes(FileTree(tmp_path / "proc")) is None


def test_half_of_the_page_cache_of_a_node_is_available(tmp_path: Path) -> None:
    file = tmp_path / "sys/devices/system/node/node3/meminfo"
    file.parent.mkdir(parents=True)
    file.write_text("Node 3 MemFree: 100 kB\nNode 3 FilePages: 50 kB\n")
    assert node_available_bytes(FileTree(tmp_path), 3) == 125 * 1024
    assert node_available_bytes(FileTree(tmp_path), 4) is None


# ------------------------------------------------------------------ the request


def test_large_weights_begin_with_a_trial_and_small_ones_do_not() -> None:
    memory = AvailableMemory.from_topology(from_sysfs())
    query = request(["--weights", "1MiB,40GB,40GiB", "--threads", "1"], memory)
    assert query.small == (1 << 20,) and query.large == (40 * GB, 40 * GIB)
    assert set(query.trial_sizes) == {1 << 20, query.trial_bytes}
    assert request(["--weights", "2MiB"], memory).trial_sizes == (2 << 20,)
    assert request([], memory).large == ()


def test_a_trial_shrinks_to_the_memory_that_is_left() -> None:
    query = request(["--weights", "40GB"], AvailableMemory(300 << 20, None, {0: 300 << 20}))
    assert query.cached and 1 << 20 <= query.trial_bytes <= 270 << 20


def test_an_error_names_the_option_as_typed() -> None:
    with pytest.raises(UsageError, match=r"^llm: --weights: found '40XB'; allowed: a size"):
        request(["--weights", "40XB"], ROOMY)


# ------------------------------------------------------------------ the budget


def test_a_budget_measures_all_settings_or_the_best_or_none() -> None:
    trial_points = trial()
    costs = [cost_s(p, 40 * GB, 1e-9) for p in trial_points]
    best = max(trial_points, key=lambda p: p.tokens.value)
    best_cost = cost_s(best, 40 * GB, 1e-9)
    assert best.placement == "mirror" and best.copies == 2
    assert choose(trial_points, 40 * GB, ROOMY, 1e-9, 3 * max(costs), 0).points == tuple(trial_points)
    assert choose(trial_points, 40 * GB, ROOMY, 1e-9, 1.1 * best_cost, 0).points == (best,)
    choice = choose(trial_points, 40 * GB, ROOMY, 1e-9, 0.9 * best_cost, 0)
    assert choice.points == () and choice.needs_s > best_cost
    assert choose(trial_points, 40 * GB, ROOMY, 1e-9, choice.needs_s, 0).points == (best,)


def test_only_settings_that_fit_are_measured() -> None:
    memory = AvailableMemory(70 * GB, None, {0: 35 * GB, 1: 35 * GB})
    assert {p.placement for p in choose(trial(), 40 * GB, memory, 0.0, 1e9, 0).points} == {"interleave"}
    assert choose(trial(), 100 * GB, memory, 0.0, 1e9, 0).points == ()


def test_repetitions_share_the_rest_of_the_budget() -> None:
    [point] = [p for p in trial() if p.placement == "interleave"]
    cost = cost_s(point, 40 * GB, 1e-9)
    assert [choose([point], 40 * GB, ROOMY, 1e-9, n * cost + 1e-6, 0).runs for n in (1, 2, 3, 9)] == [1, 2, 3, 3]
    assert choose([point], 40 * GB, ROOMY, 1e-9, 2 * cost, 5).points == ()  # five were requested


def test_a_setting_is_measured_alone_with_its_options() -> None:
    argv = trial()[0].argv(["--weights", "1GiB,40GB", "--threads", "1,all", "--seed", "4"], 40 * GB)
    assert (
        " ".join(argv) == "--weights 40000000000 --threads 8 --seed 4 --placement one-node --pages thp --memory-node 0"
    )


# ------------------------------------------------------------------ the answer


def test_points_belong_to_the_requested_size_that_they_round() -> None:
    measured_points = points(
        [*setting("local", 2, 9e9, size=GIB - 4096), *setting("local", 2, 9e9, size=40 * GB - 9)], TWO_NODES
    )
    assert [p.weights_bytes for p in of_size(measured_points, 40 * GB, [GIB, 40 * GB])] == [40 * GB - 9]


def test_a_prediction_is_the_read_bandwidth_over_the_weights() -> None:
    query = request(["--weights", "40GB", "--placement", "mirror"], AvailableMemory(300 << 20, None, {0: 300 << 20}))
    first, *others = predicted_answer(trial(), 40 * GB, query, ROOMY, "the budget is too short")
    best = best_of(trial(), "read")[0]
    expected = best.read.value / (40 * GB)
    assert first.startswith(f"40 GB of weights: {expected:.2f} tokens/s (95 %: ") and "predicted" in first
    text = " ".join(others)
    assert "prediction" in text and "the budget is too short" in text and "It assumes that each token reads all" in text
    assert f"would give {best.share * expected:.2f} tokens/s" in text and "the rate may be too high" in text


def test_a_prediction_prefers_settings_that_fit() -> None:
    memory = AvailableMemory(70 * GB, None, {0: 35 * GB, 1: 35 * GB})
    query = request(["--weights", "40GB"], ROOMY)
    assert "(interleave), 8 threads." in predicted_answer(trial(), 40 * GB, query, memory, "")[0]
    assert "if the memory were large enough" in predicted_answer(trial(), 400 * GB, query, memory, "")[0]


@pytest.mark.parametrize(
    ("share", "limit"),
    [(0.97, "limits it."), (0.7, "for the most part"), (0.4, "does not limit it")],
)
def test_a_measured_answer_says_what_limits_it(share: float, limit: str) -> None:
    measured_points = points(setting("interleave", 8, 70 * GB, share, 40 * GB), TWO_NODES)
    first, *others = measured_answer(measured_points, 40 * GB, trial(), 512 << 20, TWO_NODES)
    assert "predicted" not in first and first.startswith("40 GB of weights: ")
    assert any(limit in line and f"{100 * share:.0f}" in line for line in others)
    assert any("2 other settings" in line for line in others)


def test_flags_are_part_of_the_answer() -> None:
    records = [
        record("llm", r.metric, r.value, flags=["disturbed"], **dict(r.conditions)) for r in setting("local", 2, 9e9)
    ]
    lines = measured_answer(points(records, TWO_NODES), 512 << 20, (), 512 << 20, TWO_NODES)
    assert "flagged (disturbed)" in lines[-1]


def test_weights_beyond_any_machine_get_a_prediction(tmp_path: Path) -> None:
    completed = meshmark(
        *("measure", "llm", "--weights", "900TB", "--budget", "1s", "--threads", "1", "--no-store"),
        env={"XDG_DATA_HOME": str(tmp_path)},
    )
    assert completed.returncode == 0, completed.stderr
    answer = completed.stdout
    assert "900 TB of weights: " in answer and "This is a prediction" in answer and "to use" in answer
