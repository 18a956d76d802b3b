"""Known pitfalls of MPI libraries, each tested live."""

from __future__ import annotations

from collections.abc import Iterator

from meshmark.doctor.finding import Finding
from meshmark.doctor.tested import NAMESPACES, Tested, forbidden_namespaces


def finalize(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: end of OpenSHMEM programs"
    why = "a program that dies in shmem_finalize has lost what it had not written, and its job has failed"
    words = ["halo", "--protocol", "shmem_put", "--words", "1", "--budget", "200ms", "--interval", "20"]
    bare = tested.mpirun(2, words, tested.room())
    if bare.absent and not bare.value("exchange_time"):
        yield Finding(
            name,
            f"absent: {bare.absent}",
            "hidden",
            "OpenSHMEM's figures cannot be had",
            tested.host.install("shmem-openmpi"),
        )
        return
    if not bare.why:
        yield Finding(name, "ends well", "ok", why)
        return
    hooks = ["--mca", "opal_common_ucx_opal_mem_hooks", "0"]
    cured = tested.mpirun(2, words, [*tested.room(), *hooks])
    if cured.why:
        yield Finding(name, f"{bare.why}; without UCX's memory hooks: {cured.why}", "hidden", why)
    else:
        found = f"{bare.why} after its results; ends well without UCX's memory hooks, and so Meshmark starts it"
        yield Finding(name, found, "hidden", why, f"oshrun {' '.join(hooks)} …")


def one_sided(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: windows over TCP"
    why = "between hosts without a fabric MPI_Win_allocate may fail, and with it every one-sided program"
    words = ["halo", "--protocol", "rma_fence", "--words", "1", "--budget", "200ms", "--interval", "20"]
    tcp, osc = NAMESPACES[tested.kind].cure, ["--mca", "osc", "rdma,sm,pt2pt"]
    bare = tested.between_hosts(words, tcp)
    if forbidden := forbidden_namespaces(bare):
        yield Finding(name, forbidden, "unknown", why, tested.more_rights)
        return
    if bare.value("exchange_time") is not None:
        yield Finding(name, "can be made between two hosts in namespaces", "ok", why)
        return
    wrong = bare.absent or bare.why or "no result"
    cured = tested.between_hosts(words, [*tcp, *osc])
    if cured.value("exchange_time") is None:
        yield Finding(name, f"{wrong}; with {osc[-1]}: {cured.absent or cured.why or 'no result'}", "hidden", why)
    else:
        yield Finding(name, f"{wrong}; can be made with another component", "hidden", why, f"mpirun {' '.join(osc)} …")


def odd_windows(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: windows of odd sizes"
    why = "one-sided data beside their place: wrong results, and no error"
    tried = tested.as_measured(2, ["defects", "--trial", "window", "--words", "1..65536"])
    results = tried.results("wrong_words")
    if not results:
        yield Finding(name, tried.why or tried.absent or "no result", "unknown", why)
        return
    wrong = [r.conditions for r in results if r.value > 0]
    odd = [c for c in wrong if int(str(c["window_bytes"])) % 16]
    if not wrong:
        most = max(int(str(r.conditions["words"])) for r in results)
        found = f"{len(results)} messages of up to {most} words arrived whole"
        if tried.why:
            yield Finding(name, f"{found}, then {tried.why}", "unknown", why)
        else:
            yield Finding(name, found, "ok", why)
        return
    first = min(wrong, key=lambda c: int(str(c["words"])))
    beside = int(str(first.get("shifted_bytes", 0)))
    shift = f", {beside:+} bytes beside their place" if beside else ""
    ways = " and ".join(sorted({str(c["protocol"]) for c in wrong}))
    words = f"{first['words']} word{'s' if first['words'] != 1 else ''}"
    found = (
        f"{ways} go wrong from {words} in a window of {first['window_bytes']} bytes on{shift} "
        f"({len(wrong)} of {len(results)} messages, {len(wrong) - len(odd)} in windows of a multiple of 16 bytes)"
    )
    in_program = "" if len(odd) < len(wrong) else "in the program: round sizes of windows up to a multiple of 16 bytes"
    yield Finding(name, found, "spoils-measurements", why, tested.cure(["--trial", "window"], in_program))


def coarrays(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: co-arrays"
    why = "no error tells that x[j] = v or an event did not arrive; who waits for a lost event waits for ever"
    trial = ["--trial", "caf_scalar,caf_element,caf_event"]
    tried = tested.as_measured(2, ["defects", *trial])
    results = tried.results("wrong_words")
    if not results or tried.why:
        if tried.absent:
            yield Finding(
                name,
                f"absent: {tried.absent}",
                "hidden",
                "figures of co-arrays cannot be had",
                tested.host.install(f"caf-{tested.kind}"),
            )
        else:
            yield Finding(name, tried.why or "no result", "unknown", why)
        return
    kinds = {"caf_scalar": "scalar puts", "caf_element": "puts of elements", "caf_event": "posts of events"}
    counts: dict[str, list[int]] = {}  # lost, sent
    for r in results:
        count = counts.setdefault(kinds[str(r.conditions["trial"])], [0, 0])
        count[0] += int(r.value)
        count[1] += int(str(r.conditions["sent_words"]))
    wrong = [r for r in results if r.value]
    if not wrong:
        sent = ", ".join(f"{count[1]} {told}" for told, count in counts.items())
        sizes = len({r.conditions["window_bytes"] for r in results})
        yield Finding(name, f"{sent} arrived, on co-arrays of {sizes} sizes", "ok", why)
        return
    lost = ", ".join(f"{count[0]} of {count[1]} {told}" for told, count in counts.items())
    where = in_program = ""
    if all(int(str(r.conditions["window_bytes"])) % 16 for r in wrong):
        where = "; none where an image's part is a multiple of 16 bytes"
        in_program = "in the program: of every co-array a multiple of 16 bytes on an image, as 2 words or 4 events"
    yield Finding(
        name,
        f"lost or beside their place: {lost}{where}",
        "spoils-measurements",
        why,
        tested.cure(trial, in_program),
    )
