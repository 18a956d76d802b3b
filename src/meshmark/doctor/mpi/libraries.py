"""Known pitfalls of MPI libraries, each tested live."""

from __future__ import annotations

from collections.abc import Iterator

from meshmark.doctor.finding import HostFinding
from meshmark.doctor.mpi.tested import NAMESPACES, TestedLauncher, forbidden_namespaces


def finalize(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether an OpenSHMEM program ends without a crash."""
    name = f"{tested.name}: end of OpenSHMEM programs"
    effect = "a program that crashes in shmem_finalize loses unwritten output, and its job fails"
    argv = ["halo", "--protocol", "shmem_put", "--words", "1", "--budget", "200ms", "--interval", "20"]
    plain_run = tested.mpirun(2, argv, tested.room())
    if plain_run.absent and not plain_run.value("exchange_time"):
        yield HostFinding(
            name,
            f"absent: {plain_run.absent}",
            "hidden",
            "OpenSHMEM cannot be measured",
            tested.host.install("shmem-openmpi"),
        )
        return
    if not plain_run.why:
        yield HostFinding(name, "ends normally", "ok", effect)
        return
    hooks = ["--mca", "opal_common_ucx_opal_mem_hooks", "0"]
    fixed_run = tested.mpirun(2, argv, [*tested.room(), *hooks])
    if fixed_run.why:
        yield HostFinding(name, f"{plain_run.why}; without UCX's memory hooks: {fixed_run.why}", "hidden", effect)
    else:
        observation = (
            f"{plain_run.why} after its results; ends normally without UCX's memory hooks, as Meshmark starts it"
        )
        yield HostFinding(name, observation, "hidden", effect, f"oshrun {' '.join(hooks)} …")


def one_sided(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether one-sided windows work over TCP between two hosts, and with which options."""
    name = f"{tested.name}: windows over TCP"
    effect = "between hosts without a fabric, MPI_Win_allocate may fail, and so does every one-sided program"
    argv = ["halo", "--protocol", "rma_fence", "--words", "1", "--budget", "200ms", "--interval", "20"]
    tcp, osc = NAMESPACES[tested.kind].cure, ["--mca", "osc", "rdma,sm,pt2pt"]
    plain_run = tested.between_hosts(argv, tcp)
    if refusal := forbidden_namespaces(plain_run):
        yield HostFinding(name, refusal, "unknown", effect, tested.more_rights)
        return
    if plain_run.value("exchange_time") is not None:
        yield HostFinding(name, "work between two hosts in namespaces", "ok", effect)
        return
    failure = plain_run.absent or plain_run.why or "no result"
    fixed_run = tested.between_hosts(argv, [*tcp, *osc])
    if fixed_run.value("exchange_time") is None:
        yield HostFinding(
            name, f"{failure}; with {osc[-1]}: {fixed_run.absent or fixed_run.why or 'no result'}", "hidden", effect
        )
    else:
        yield HostFinding(
            name, f"{failure}; work with another component", "hidden", effect, f"mpirun {' '.join(osc)} …"
        )


def odd_windows(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether one-sided data arrive intact in windows of sizes that 16 does not divide."""
    name = f"{tested.name}: windows of odd sizes"
    effect = "one-sided data at wrong addresses: wrong results without an error"
    run = tested.as_measured(2, ["defects", "--trial", "window", "--words", "1..65536"])
    results = run.reading.results("wrong_words")
    if not results:
        yield HostFinding(name, run.why or run.absent or "no result", "unknown", effect)
        return
    failures = [r.conditions for r in results if r.value > 0]
    odd_failures = [c for c in failures if int(str(c["window_bytes"])) % 16]
    if not failures:
        max_words = max(int(str(r.conditions["words"])) for r in results)
        observation = f"{len(results)} messages of up to {max_words} words arrived intact"
        if run.why:
            yield HostFinding(name, f"{observation}, then {run.why}", "unknown", effect)
        else:
            yield HostFinding(name, observation, "ok", effect)
        return
    smallest = min(failures, key=lambda c: int(str(c["words"])))
    shift_bytes = int(str(smallest.get("shifted_bytes", 0)))
    shift = f", shifted by {shift_bytes:+} bytes" if shift_bytes else ""
    protocols = " and ".join(sorted({str(c["protocol"]) for c in failures}))
    size = f"{smallest['words']} word{'s' if smallest['words'] != 1 else ''}"
    observation = (
        f"{protocols} fail from {size} in a window of {smallest['window_bytes']} bytes{shift} "
        f"({len(failures)} of {len(results)} messages, {len(failures) - len(odd_failures)} "
        "in windows of a multiple of 16 bytes)"
    )
    in_program = (
        ""
        if len(odd_failures) < len(failures)
        else "in the program: round sizes of windows up to a multiple of 16 bytes"
    )
    yield HostFinding(name, observation, "spoils-measurements", effect, tested.cure(["--trial", "window"], in_program))


def coarrays(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether assignments and events of co-arrays reach the other image."""
    name = f"{tested.name}: co-arrays"
    effect = "a lost x[j] = v or event causes no error, and an image that waits for a lost event never continues"
    trial = ["--trial", "caf_scalar,caf_element,caf_event"]
    run = tested.as_measured(2, ["defects", *trial])
    results = run.reading.results("wrong_words")
    if not results or run.why:
        if run.absent:
            yield HostFinding(
                name,
                f"absent: {run.absent}",
                "hidden",
                "co-arrays cannot be measured",
                tested.host.install(f"caf-{tested.kind}"),
            )
        else:
            yield HostFinding(name, run.why or "no result", "unknown", effect)
        return
    kinds = {"caf_scalar": "scalar puts", "caf_element": "element puts", "caf_event": "event posts"}
    counts: dict[str, list[int]] = {}  # words lost and words sent, by kind of operation
    for r in results:
        count = counts.setdefault(kinds[str(r.conditions["trial"])], [0, 0])
        count[0] += int(r.value)
        count[1] += int(str(r.conditions["sent_words"]))
    wrong_results = [r for r in results if r.value]
    if not wrong_results:
        arrivals = ", ".join(f"{count[1]} {kind}" for kind, count in counts.items())
        sizes = len({r.conditions["window_bytes"] for r in results})
        yield HostFinding(name, f"{arrivals} arrived, with co-arrays of {sizes} sizes", "ok", effect)
        return
    losses = ", ".join(f"{count[0]} of {count[1]} {kind}" for kind, count in counts.items())
    scope = in_program = ""
    if all(int(str(r.conditions["window_bytes"])) % 16 for r in wrong_results):
        scope = "; none where an image's part is a multiple of 16 bytes"
        in_program = "in the program: make the part of each image a multiple of 16 bytes, such as 2 words or 4 events"
    yield HostFinding(
        name,
        f"lost or misplaced: {losses}{scope}",
        "spoils-measurements",
        effect,
        tested.cure(trial, in_program),
    )
