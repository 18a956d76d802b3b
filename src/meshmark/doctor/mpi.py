"""Traps of launchers and MPI libraries, each tried for real within seconds: what springs here, and what helps.

A trial runs a launcher as a user would, and where something goes wrong runs it again with the cure; what is said of it
is what was seen. Wrong numbers and wrong data are judged `spoils-measurements`, what does not run `hidden`, what could
not be tried `unknown`, and a trap that does not spring here `ok`, with what was seen.

Sources: open-mpi/ompi issue 11604 (memory hooks of UCX), mpirun(1) of Open MPI 4.1, MPICH's README.envvar; the defects
of windows and co-arrays were found by the verification of `pingpong` and `halo`, and by events that never came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meshmark.doctor import launchers, libraries
from meshmark.doctor.attempt import Host, Try, try_for_real
from meshmark.doctor.finding import Finding, in_order
from meshmark.doctor.tested import NAMES, Tested
from meshmark.measure import launch

Pitfall = Callable[[Tested], Iterator[Finding]]


def pitfalls(kind: str) -> list[Pitfall]:
    """What is tested with a library, in this order."""
    always = [
        launchers.as_root,
        launchers.crowded,
        launchers.bound,
        launchers.namespaces,
        launchers.left_behind,
    ]
    own = [libraries.finalize, libraries.one_sided] if kind == "openmpi" else []
    return [*always, *own, libraries.odd_windows, libraries.coarrays]


def examine(
    asked: str = "all",
    *,
    host: Host | None = None,
    attempt: Try = try_for_real,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """Every trap of the launchers asked for, the worst first.

    Args:
        asked: `openmpi`, `mpich`, `mpi` (any other), several with commas, or `all`.
        progress: told how many of the trials are done.

    Raises:
        UsageError: no such library. AbsentError: the one that was asked for is not here, or none is.
    """
    host = host or Host.here()
    kinds = launch.chosen(asked)
    found = [
        Finding(
            f"{NAMES[kind]}: installed",
            "not here, or Meshmark was built without it",
            "hidden",
            "its figures cannot be had",
            host.install(kind),
        )
        for kind in ("openmpi", "mpich")
        if asked == "all" and kind not in kinds
    ]
    all_tested = [Tested(launch.launcher(kind), host, attempt) for kind in kinds]
    trials = [(pitfall, tested) for tested in all_tested for pitfall in pitfalls(tested.kind)]
    for done, (pitfall, tested) in enumerate(trials):
        progress(done, len(trials))
        found += pitfall(tested)
    progress(len(trials), len(trials))
    return in_order(found)
