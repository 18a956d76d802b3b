"""Replaces the nodes of a cluster that has only names: writes the files that they would write, and ends their jobs."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final

from meshmark.fleet.nodesets import expand
from meshmark.fleet.plan import load_plan
from support.made_fleet import lines_of
from support.mini_slurm import Cluster

_LOOK_S: Final = 0.3
_NAME: Final = "@node@"


class StandingIn:
    """A context in which the nodes of every job of a cluster measure for less than a second.

    Attributes:
        measured: How many times each node has measured.
        jobs: Names of the jobs that were seen.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.measured: Counter[str] = Counter()
        self.jobs: set[str] = set()
        self._cluster, self._folder = cluster, folder
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> StandingIn:
        self._thread.start()
        return self

    def __exit__(self, *_: tuple[type[BaseException], BaseException, TracebackType]) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(_LOOK_S):
            states = self._cluster.ask("squeue", "--noheader", "--states=CF,R", "--format=%A|%j|%N")
            jobs = [line.split("|") for line in states.splitlines()]
            for _, name, nodes in jobs:
                self.jobs.add(name)
                self._measure(expand(nodes))
            if jobs:
                self._cluster.ask("scancel", *(id_ for id_, _, _ in jobs))

    def _measure(self, nodes: list[str]) -> None:
        campaign = max((self._folder / "campaigns").iterdir())
        state = json.loads((campaign / "journal.jsonl").read_text().splitlines()[0])
        plan = load_plan(self._folder / "plans" / f"{state['plan']}.json")
        lines = lines_of(_NAME, plan=plan.id, kind=plan.kind)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        for node in nodes:
            self.measured[node] += 1
            partial_file = campaign / "inbox" / f".{node}"
            partial_file.write_bytes(gzip.compress(text.replace(_NAME, node).encode(), 1, mtime=0))
            Path(partial_file).rename(campaign / "inbox" / f"{node}.jsonl.gz")
