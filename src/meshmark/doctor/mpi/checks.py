"""Tests known pitfalls of launchers and MPI libraries live, and reports remedies.

Each test runs a launcher as a user would; if it fails, it runs again with the remedy. Findings state what was observed.
Wrong times and wrong data are `spoils-measurements`, failures to run are `hidden`, tests that cannot run are `unknown`,
and pitfalls that do not occur are `ok`.

Sources: open-mpi/ompi issue 11604 (memory hooks of UCX), mpirun(1) of Open MPI 4.1, MPICH's README.envvar. The defects
of windows and co-arrays were found by the verification in `pingpong` and `halo`, and by lost events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meshmark.doctor.finding import HostFinding, in_order
from meshmark.doctor.mpi import launchers, libraries
from meshmark.doctor.mpi.attempt import CommandRunner, MpiHost, try_for_real
from meshmark.doctor.mpi.tested import NAMES, TestedLauncher
from meshmark.measure.runs import launch

Pitfall = Callable[[TestedLauncher], Iterator[HostFinding]]


def pitfalls(kind: str) -> list[Pitfall]:
    """Return the tests of one library, in order."""
    common_pitfalls = [
        launchers.as_root,
        launchers.oversubscribed,
        launchers.overlapping_bindings,
        launchers.namespaces,
        launchers.stale_shared_memory,
    ]
    library_pitfalls = [libraries.finalize, libraries.one_sided] if kind == "openmpi" else []
    return [*common_pitfalls, *library_pitfalls, libraries.odd_windows, libraries.coarrays]


def examine(
    requested: str = "all",
    *,
    host: MpiHost | None = None,
    attempt: CommandRunner = try_for_real,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[HostFinding]:
    """Return the findings about all requested libraries, worst first.

    Args:
        requested: `openmpi`, `mpich`, `mpi` (any other), a comma-separated list, or `all`.
        host: The host; by default this host.
        attempt: Function that runs a command.
        progress: Function that is called with the number of completed tests and the number of all tests.

    Raises:
        UsageError: A library is unknown.
        AbsentError: A requested library is not installed, or no library is.
    """
    host = host or MpiHost.here()
    kinds = launch.chosen(requested)
    findings = [
        HostFinding(
            f"{NAMES[kind]}: installed",
            "not installed, or Meshmark was built without it",
            "hidden",
            "it cannot be measured",
            host.install(kind),
        )
        for kind in ("openmpi", "mpich")
        if requested == "all" and kind not in kinds
    ]
    all_tested = [TestedLauncher(launch.launcher(kind), host, attempt) for kind in kinds]
    trials = [(pitfall, tested) for tested in all_tested for pitfall in pitfalls(tested.kind)]
    for index, (pitfall, tested) in enumerate(trials):
        progress(index, len(trials))
        findings += pitfall(tested)
    progress(len(trials), len(trials))
    return in_order(findings)
