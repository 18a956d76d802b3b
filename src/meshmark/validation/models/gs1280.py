"""Statements on the GS1280 and related machines (Cvetanovic, ISCA 2003)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshmark.model.engine import ask, median_of
from meshmark.model.instruments import io_run, nodes_and_cpus
from meshmark.model.machine import MachineFile
from meshmark.model.statements import figure_13
from meshmark.model.workloads import chase, gups, random_reads, trial
from meshmark.validation.models.base import (
    StatementResult,
    check,
    gs320_mean,
    level_ns,
    machine,
    matrix,
    mean_remote,
    rate,
    relation,
    slowdown,
    triad,
    within_limits,
    within_percent,
)


@check("A01")
def l2_peak_bandwidth() -> StatementResult:
    return within_percent(16 * machine("gs1280-16").number("cpu.clock_ghz"), 18.4, 0.5, "GB/s")


@check("A02")
def memory_peak_of_eight_channels() -> StatementResult:
    m = machine("gs1280-16")
    return within_percent(m.number("node.controllers") * m.number("memory.channel_gb_per_s"), 12.3, 0.5, "GB/s")


@check("A03")
def link_peak_per_direction() -> StatementResult:
    return within_percent(machine("gs1280-16").number("links.module.bandwidth_gb_per_s"), 3.1, 1.5, "GB/s")


def chase_ns(m: MachineFile, **more: Any) -> float:
    """Return the latency in ns of a pointer chase by CPU 0 in local memory."""
    return median_of(ask(m, [chase(0, "local", **more)])[0]["groups"][0]["latency_s"]) * 1e9


@check("A04")
def latency_of_an_open_page() -> StatementResult:
    return within_percent(chase_ns(machine("gs1280-16")), 80, 5, "ns")


@check("A05")
def latency_of_a_closed_page() -> StatementResult:
    return within_percent(chase_ns(machine("gs1280-16"), stride_bytes=1 << 20), 130, 5, "ns")


@check("A06")
def gs320_latency_over_gs1280() -> StatementResult:
    return within_percent(matrix("gs320-4")[0][0] / matrix("gs1280-16")[0][0], 3.8, 5)


@check("A07")
def p690_latency_over_gs1280() -> StatementResult:
    ratio = matrix("p690")[0][0] / matrix("gs1280-16")[0][0]
    return relation(ratio > 3, f"{ratio:.3g}", numbers=(ratio,))


@check("A08")
def slower_only_between_two_and_sixteen_mib() -> StatementResult:
    sizes = [2**k * 1024 for k in range(7, 17)]  # 128 KiB to 64 MiB
    series = {n: [level_ns(n, s) for s in sizes] for n in ("gs1280-16", "gs320-4", "es45")}
    holds = True
    for i, size in enumerate(sizes):
        slower_flags = [series["gs1280-16"][i] > series[o][i] for o in ("gs320-4", "es45")]
        expected = 2 * 2**20 <= size <= 16 * 2**20
        holds = holds and all(s == expected for s in slower_flags)
    return StatementResult(
        "order holds from 128 KiB to 64 MiB" if holds else "order differs",
        holds,
        series=tuple((k, tuple(v)) for k, v in series.items()),
        numbers=tuple(v / series["gs1280-16"][i] for o in ("gs320-4", "es45") for i, v in enumerate(series[o])),
    )


@check("A09")
def triad_over_gs320() -> StatementResult:
    ratio = triad(machine("gs1280-4"), range(4)) / triad(machine("gs320-4"), range(4))
    return within_percent(ratio, 7, 15, reason="4 CPUs each; the port and module bandwidths of the GS320 are assumed")


@check("A10")
def triad_over_p690() -> StatementResult:
    ratio = triad(machine("gs1280-16"), range(8)) / triad(machine("p690"), range(8))
    return within_percent(
        ratio,
        5,
        15,
        reason="8 CPUs each; the p690's memory bandwidth is derived from a cache port, its latency from a bound",
    )


@check("A11")
def stream_scales_linearly() -> StatementResult:
    scale = {
        n: triad(machine(n), range(4)) / (4 * triad(machine(n), range(1))) for n in ("gs1280-4", "es45", "gs320-4")
    }
    holds = abs(scale["gs1280-4"] - 1) <= 0.02 and scale["es45"] < 0.9 and scale["gs320-4"] < 0.9
    return relation(holds, ", ".join(f"{k} {v:.2f}" for k, v in scale.items()), numbers=tuple(scale.values()))


@check("A12")
def sixteen_latencies_from_node_0() -> StatementResult:
    modelled = [1e9 * v for v in matrix("gs1280-16")[0]]
    errors = [o / p - 1 for o, p in zip(modelled, figure_13(), strict=True)]
    rms = 100 * math.sqrt(math.fsum(e * e for e in errors) / len(errors))
    worst = 100 * max(map(abs, errors))
    series = (("published", figure_13()), ("modelled", tuple(modelled)))
    return StatementResult(
        f"rms {rms:.2f} %, worst {worst:.2f} %, 5 parameters",
        rms <= 3 and worst <= 5,
        error_percent=rms,
        series=series,
        numbers=tuple(modelled),
    )


@check("A13")
def nodes_by_hops() -> StatementResult:
    row = ask(machine("gs1280-16"), [{"kind": "hops"}], threads=1)[0]["hops"][0]
    counts = [row.count(h) for h in (1, 2, 3, 4)]
    return relation(counts == [4, 6, 4, 1], str(counts), numbers=counts)


@check("A14")
def gs320_has_two_latency_levels() -> StatementResult:
    levels = sorted({round(v * 1e12) for row in matrix("gs320-16") for v in row})
    return relation(len(levels) == 2, f"{len(levels)} levels", numbers=(len(levels),))


@check("A15")
def gs320_remote_latency_of_16_cpus() -> StatementResult:
    return within_percent(gs320_mean(4) / mean_remote(matrix("gs1280-16")), 4.0, 10)


@check("A16")
def worst_latency_below_gs320_local() -> StatementResult:
    worst, local = max(matrix("gs1280-16")[0]), matrix("gs320-16")[0][0]
    finding = relation(worst < local, f"{worst * 1e9:.0f} < {local * 1e9:.0f} ns", numbers=(worst / local,))
    return replace(finding, why="both latencies were calibrated, by A06 and A12")


@check("A17")
def gs320_latency_of_4_cpus() -> StatementResult:
    return within_percent(gs320_mean(1) / mean_remote(matrix("gs1280-4")), 2.0, 15)


@check("A18")
def gs320_latency_of_32_cpus() -> StatementResult:
    return within_percent(gs320_mean(8) / mean_remote(matrix("gs1280-32")), 4.0, 15)


@check("A19")
def gs320_of_32_over_gs1280_of_64_cpus() -> StatementResult:
    return within_percent(gs320_mean(8) / mean_remote(matrix("gs1280-64")), 3.0, 10)


@check("A20")
def latency_of_4_cpus_like_es45() -> StatementResult:
    return within_percent(mean_remote(matrix("gs1280-4")) / matrix("es45")[0][0], 1.0, 20)


@check("A21")
def gs320_dirty_latency_of_16_cpus() -> StatementResult:
    return within_percent(mean_remote(matrix("gs320-16", "dirty")) / mean_remote(matrix("gs1280-16", "dirty")), 6.6, 15)


@check("A22")
def dirty_like_clean() -> StatementResult:
    ratio = mean_remote(matrix("gs1280-16", "dirty")) / mean_remote(matrix("gs1280-16"))
    return relation(ratio <= 1.1, f"{ratio:.2f}", numbers=(ratio,))


@check("A23")
def dirty_latency_below_es45() -> StatementResult:
    gs1280, es45 = mean_remote(matrix("gs1280-16", "dirty")), matrix("es45", "dirty")[0][0]
    return relation(gs1280 < es45, f"{gs1280 * 1e9:.0f} < {es45 * 1e9:.0f} ns", numbers=(gs1280 / es45,))


def loaded_curve(name: str, chains: Sequence[int]) -> list[tuple[float, float]]:
    """Return (bandwidth in B/s, latency in s) by outstanding reads of random other nodes, or of the shared memory."""
    m = machine(name)
    homes = "others" if nodes_and_cpus(m)[0] > 1 else "local"
    answers = ask(m, [random_reads(m, count, homes=homes) for count in chains])
    return [(median_of(a["groups"][0]["bytes_per_s"]), median_of(a["groups"][0]["latency_s"])) for a in answers]


def load_series(curves: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the bandwidths in B/s and the latencies in s of each curve as named series."""
    return tuple(
        (f"{n}: {what}", tuple(p[i] for p in c)) for n, c in curves.items() for i, what in ((0, "B/s"), (1, "s"))
    )


@check("A24")
def latency_grows_less_under_load() -> StatementResult:
    chains = [1, 2, 4, 6, 8, 12, 16, 20]
    curves = {n: loaded_curve(n, chains) for n in ("gs1280-16", "gs320-16", "es45")}
    growth = {n: [p[1] / c[0][1] for p in c] for n, c in curves.items()}
    max_rate = {n: c[-1][0] for n, c in curves.items()}

    def at_equal_bandwidth(n: str) -> bool:
        """Return whether the latency of the GS1280 grows less than on machine `n`, at each bandwidth of `n`."""
        for bandwidth, latency in curves[n][1:]:
            growths = [g for (b, _), g in zip(curves["gs1280-16"], growth["gs1280-16"], strict=True) if b >= bandwidth]
            if not growths or min(growths) > latency / curves[n][0][1] + 1e-9:
                return False
        return True

    holds = at_equal_bandwidth("gs320-16") and at_equal_bandwidth("es45")
    text = ", ".join(f"{n} {max_rate[n] / 1e9:.1f} GB/s at {g[-1]:.1f} x" for n, g in growth.items())
    final_growth = tuple(g[-1] for g in growth.values())
    return StatementResult(text, holds, series=load_series(curves), numbers=final_growth)


def exchange_time(name: str, ranks: int) -> float:
    """Return the time per byte in seconds of an exchange with both neighbours through shared buffers.

    The sender copies its array to a buffer in local memory; the receiver copies the buffer to its array.
    """
    m = machine(name)
    _, node_of = nodes_and_cpus(m)
    chains = int(m.number("cpu.stream_outstanding", m.number("cpu.outstanding")))
    actors = []
    for c in range(ranks):
        streams: list[dict[str, Any]] = []
        for source in (c, (c + 1) % ranks, c, (c - 1) % ranks):
            homes: Any = "local" if source == c else [node_of[source]]
            copy = [{"op": "read", "homes": homes}, {"op": "own", "homes": "local"}, {"op": "write", "homes": "local"}]
            streams += copy
        actors.append({"cpus": [c], "chains": chains, "streams": streams})
    # Two sent and two received messages move twelve lines, at the share of the bandwidth of one rank.
    return 12 / (rate(m, trial(actors)) / ranks)


@check("A25")
def exchange_over_gs320_and_sc45() -> StatementResult:
    gs1280 = exchange_time("gs1280-16", 16)
    # A node of the SC45 sends two of its eight messages to other nodes at 280 MB/s per direction, unless the memory of
    # the node is slower.
    sc45 = max(2 / 0.28e9, exchange_time("es45", 4))
    low, high = exchange_time("gs320-16", 16) / gs1280, sc45 / gs1280
    inside = 3 * 0.75 <= low <= 4 * 1.25 and 3 * 0.75 <= high <= 4 * 1.25
    reason = "the ports of the GS320 are poorly known; the SC45 is modelled as an ES45 and a link"
    return StatementResult(f"{low:.2g} and {high:.2g}", inside, "" if inside else reason, numbers=(low, high))


@check("A26")
def io_read_of_one_port() -> StatementResult:
    m = machine("gs1280-16")
    return within_percent(rate(m, io_run(m, [0])) / 1e9, 1.0, 5, "GB/s")


@check("A27")
def io_read_of_eight_ports() -> StatementResult:
    m = machine("gs1280-16")
    finding = within_percent(rate(m, io_run(m, range(8))) / 1e9, 8.0, 3, "GB/s")
    return replace(finding, why="the rate of one I/O chip was fitted to A26, and eight chips share nothing")


@check("A28")
def io_over_es45_and_gs320() -> StatementResult:
    gs1280 = machine("gs1280-16")
    four_ports = rate(gs1280, io_run(gs1280, range(4)))
    other_rates = [rate(machine(n), io_run(machine(n), [0])) for n in ("es45", "gs320-4")]
    low, high = four_ports / other_rates[0], four_ports / other_rates[1]
    inside = abs(low / 2.7 - 1) <= 0.1 and abs(high / 8 - 1) <= 0.1
    return StatementResult(f"{low:.2g} and {high:.2g}", inside, numbers=(low, high))


@check("A29")
def controller_use_of_specfp() -> StatementResult:
    return StatementResult(
        "not modelled",
        None,
        "needs the miss rates of the programs, which no available source gives; any choice would be a fit",
    )


@check("A30")
def memory_use_of_starcd_swim_and_sp() -> StatementResult:
    return StatementResult(
        "not modelled",
        None,
        "needs the miss rates of the programs, which no available source gives; any choice would be a fit",
    )


@check("A31")
def gups_loads_east_and_west_links() -> StatementResult:
    m = machine("gs1280-32")
    run = {**gups("all", 16), "links": True}
    links = ask(m, [run])[0]["links"]
    share = [
        math.fsum(x["share"] for x in links if x["dimension"] == d) / sum(1 for x in links if x["dimension"] == d)
        for d in (0, 1)
    ]
    series = (
        ("east-west", tuple(x["share"] for x in links if x["dimension"] == 0)),
        ("north-south", tuple(x["share"] for x in links if x["dimension"] == 1)),
    )
    return StatementResult(
        f"{share[0] / share[1]:.3f}",
        abs(share[0] / share[1] / 2 - 1) <= 0.05,
        error_percent=100 * (share[0] / share[1] / 2 - 1),
        series=series,
        numbers=(share[0] / share[1],),
    )


def update_rate(name: str, cpus: int) -> float:
    """Return the reads per second of random updates by the first `cpus` CPUs."""
    m = machine(name)
    return median_of(ask(m, [gups(range(cpus), int(m.number("cpu.outstanding")))])[0]["groups"][0]["reads_per_s"])


@check("A32")
def gups_over_gs320() -> StatementResult:
    return within_percent(
        update_rate("gs1280-32", 32) / update_rate("gs320-32", 32),
        11,
        30,
        reason="32 CPUs each; the GS320's global ports are assumed at 1.75 GB/s per direction (1.6 would give 7.6)",
    )


@check("A33")
def ring_slower_under_light_load() -> StatementResult:
    ring, torus = (loaded_curve(n, [1])[0][1] for n in ("es80", "gs1280-8"))
    return within_limits(100 * (ring / torus - 1), 12, 23, "% (latency, one outstanding read)")


@check("A34")
def ring_slower_under_heavy_load() -> StatementResult:
    chains = (1, 2, 4, 8, 16)
    curves = {n: loaded_curve(n, chains) for n in ("gs1280-8", "es80")}
    # Throughput loss of the ring against the torus, for reads from random CPUs.
    losses = [100 * (1 - r[0] / t[0]) for r, t in zip(curves["es80"], curves["gs1280-8"], strict=True)][2:]
    inside = all(20 <= v <= 50 for v in losses)
    return StatementResult(
        ", ".join(f"{v:.0f}" for v in losses) + " % at 4, 8, 16 outstanding reads",
        inside,
        "" if inside else "a link of the ring carries twice the traffic, and near saturation the ring loses more",
        series=load_series(curves),
        numbers=tuple(losses),
    )


@check("A35")
def part_of_a_machine_slower_than_a_dense_one() -> StatementResult:
    dense = mean_remote(matrix("gs1280-16"))
    large = matrix("gs1280-32")
    part = [y * 8 + x for y in range(4) for x in range(4)]
    latencies = [large[a][b] for a in part for b in part if a != b]
    sparse = math.fsum(latencies) / len(latencies)
    return relation(sparse > dense, f"{sparse * 1e9:.0f} > {dense * 1e9:.0f} ns", numbers=(sparse / dense,))


@check("A36")
def striping_costs_throughput() -> StatementResult:
    # Programs with the utilisation of two controllers that A29 states for SPECfp: 8, 15 and 25 %, and 55 % for swim,
    # the worst case.
    plain, striped = machine("gs1280-16"), machine("gs1280-16", "placement.striping=pair")
    peak = plain.number("node.controllers") * plain.number("memory.channel_gb_per_s")
    losses = [slowdown(plain, range(16), share * peak, striped) for share in (0.08, 0.15, 0.25, 0.55)]
    typical, worst = losses[1:3], losses[3]
    inside = all(10 <= v <= 30 for v in typical) and abs(worst - 70) <= 15
    text = ", ".join(f"{v:.0f}" for v in losses) + " % for programs at 8, 15, 25, 55 % of the memory bandwidth"
    return StatementResult(
        text,
        inside,
        "" if inside else "the worst or the typical case is outside",
        series=(("loss %", tuple(losses)),),
        numbers=tuple(losses),
    )


@check("A37")
def striping_gains_at_a_hot_spot() -> StatementResult:
    # All CPUs read from node 0. The reads of CPU 0 count, too; they lose against reads that cross the mesh.
    gains = {"others": 0.0, "all": 0.0}
    for chains in (1, 2, 4, 8, 16):
        rates: list[dict[str, float]] = []
        for m in (machine("gs1280-16"), machine("gs1280-16", "placement.striping=pair")):
            actors = [random_reads(m, chains, cpus, homes=[0])["actors"][0] for cpus in ([0], range(1, 16))]
            groups = ask(m, [trial([{**a, "group": g} for g, a in enumerate(actors)])])[0]["groups"]
            cpu_0_rate, other_rate = (median_of(g["bytes_per_s"]) for g in groups)
            rates.append({"others": other_rate, "all": cpu_0_rate + other_rate})
        gains = {
            readers: max(best, 100 * (rates[1][readers] / rates[0][readers] - 1)) for readers, best in gains.items()
        }
    inside = abs(gains["all"] - 80) <= 15
    return StatementResult(
        f"{gains['all']:.0f} % at most ({gains['others']:.0f} % without the reads of CPU 0)",
        inside,
        "" if inside else "CPU 0 loses; and the two homes share the link between them, so they have 6 links, not 8",
        numbers=(gains["all"],),
    )


@check("A38")
def second_controller_for_programs() -> StatementResult:
    two_controllers, one_controller = (machine("gs1280-4"), machine("gs1280-4", "node.controllers=1"))
    # 20 and 30 % of two controllers, like the published NAS and SPECfp programs.
    gains = [slowdown(two_controllers, [0], r, one_controller) for r in (2.5, 3.7)]
    inside = all(5 <= g <= 15 for g in gains)
    reason = "assumes memory phases at the bandwidth of a stream; real programs are less demanding"
    return StatementResult(
        ", ".join(f"{g:.1f}" for g in gains) + " %", inside, "" if inside else reason, numbers=tuple(gains)
    )


@check("A39")
def second_controller_for_stream() -> StatementResult:
    gain = 100 * (triad(machine("gs1280-4"), [0]) / triad(machine("gs1280-4", "node.controllers=1"), [0]) - 1)
    return within_limits(gain, 40, 60, "%", "the efficiency of the single controller depends on an assumed turnaround")


@check("A40")
def larger_memory() -> StatementResult:
    many_banks, few_banks = machine("gs1280-4"), machine("gs1280-4", "memory.banks=256")
    ratio = triad(many_banks, [0]) / triad(few_banks, [0])
    gain = 100 * (ratio - 1)
    return StatementResult(
        f"STREAM {gain:.1f} %",
        abs(gain - 12) <= 4,
        "" if abs(gain - 12) <= 4 else "the bank model hides activations behind other banks",
        numbers=(ratio,),
    )


@check("A41")
def fifth_channel_costs_nothing() -> StatementResult:
    return StatementResult("0 %", True, "the model has no fifth channel")


@check("A42")
def big_pages_gain() -> StatementResult:
    m = machine("gs1280-16")
    small = m.number("tlb.entries") * m.number("tlb.page_kib") * 1024
    large = m.number("tlb.entries") * m.number("tlb.large_page_kib") * 1024
    inside = 0.5 <= small / 2e6 <= 2 and 0.5 <= large / 512e6 <= 2
    return StatementResult(
        f"gain between {small / 2**20:.3g} and {large / 2**20:.3g} MiB",
        inside,
        "the reach of an assumed number of TLB entries",
        numbers=(small, large),
    )


@check("A43")
def big_pages_make_a_hot_cpu() -> StatementResult:
    m = machine("gs1280-16")
    page, small = m.number("tlb.large_page_kib") * 1024, m.number("tlb.page_kib") * 1024
    array, cpus = 2 * 2**20, 16
    shares = {}
    for size in (small, page):
        # Each CPU initialises its part of a 2 MiB array; the first touch places a page.
        owner = [int(p * size / (array / cpus)) for p in range(max(1, math.ceil(array / size)))]
        actors = []
        for c in range(cpus):
            homes = sorted({owner[min(len(owner) - 1, int((c + f) * array / cpus / size))] for f in (0.0, 0.5, 0.99)})
            actors.append({"cpus": [c], "chains": 8, "streams": [{"homes": homes}]})
        memory = ask(m, [trial(actors)])[0]["memory_share"]
        nodes = [memory[2 * n] + memory[2 * n + 1] for n in range(16)]
        shares[size] = max(nodes) / (math.fsum(nodes) / 16)
    return StatementResult(
        f"busiest memory {shares[page]:.1f} x the mean with large pages, {shares[small]:.1f} x with small ones",
        shares[page] > 3 * shares[small],
        "first touch and an array smaller than a large page are inputs",
        numbers=(shares[page], shares[small]),
    )
