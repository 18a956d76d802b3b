"""The sections of a report: a chart each, how to read it, and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from meshmark.report import charts, comm, compute_charts, program_charts, programs, ranking, swaps
from meshmark.report.drawing import Drawn


@dataclass(frozen=True, slots=True)
class Section:
    """One chart of the report; `caption` says how to read it.

    Attributes:
        more: instruments whose results stand in its table beside those of `instrument`.
        beside: what follows the chart, as a part of the page; without a chart it stands there alone.
        mapped: `draw` and `beside` get the machine's topology too.
        shown: where it was asked for, with the reason where nothing of it was measured; or where it can be drawn.
    """

    name: str
    title: str
    instrument: str
    caption: str
    draw: Callable[..., Drawn | None]
    more: tuple[str, ...] = ()
    beside: Callable[..., str] | None = None
    mapped: bool = False
    shown: Literal["asked", "drawn"] = "asked"

    def told(self, asked: Collection[str], drawn: bool) -> bool:
        """Whether the page has it, of a run that was asked for these instruments."""
        return drawn or (self.shown == "asked" and not {self.instrument, *self.more}.isdisjoint(asked))


SECTIONS = (
    Section(
        "latency",
        "Latency against footprint",
        "latency",
        "Time of a load that waits for the load before it, while it walks a random ring over the footprint. "
        "Steps are levels of the hierarchy; bold figures are the levels found, the band is the 95 % interval.",
        charts.latency,
    ),
    Section(
        "strides",
        "Latency against stride",
        "latency",
        "The same by constant strides. A short one finds its memory page open and a prefetcher ahead of it; a long "
        "one opens another page with every load. Dashed: random walks over the same footprint.",
        charts.strides,
    ),
    Section(
        "company",
        "Latency in company",
        "latency",
        "The same from memory, while several CPUs walk at once.",
        charts.company,
    ),
    Section(
        "bandwidth",
        "Bandwidth by kernel",
        "bandwidth",
        "Net bytes as STREAM counts them. Streaming stores go past the caches and save the read that an "
        "ordinary store causes.",
        charts.bandwidth_kernels,
    ),
    Section(
        "bandwidth_footprint",
        "Bandwidth against footprint",
        "bandwidth",
        "Where the footprint fits a cache ordinary stores win; beyond it streaming stores do. The crossing is "
        "where a program should change from one to the other.",
        charts.bandwidth_footprint,
    ),
    Section(
        "lines",
        "Core to core",
        "lines",
        "What it costs one CPU to get a cache line that another one has.",
        charts.lines,
    ),
    Section(
        "loaded",
        "Latency under load",
        "loaded",
        "Latency against the bandwidth of all: chains are independent loads in flight of each CPU; paced is one "
        "walker beside streaming neighbours. Where the curve bends up the memory is full.",
        charts.loaded,
    ),
    Section(
        "gups",
        "Random updates",
        "gups",
        "Updates of random words of a table, one after the other (plain) and with the next lines on their way (ahead).",
        charts.gups,
    ),
    Section(
        "compute",
        "Compute",
        "peak",
        "Multiply-adds in registers, and what the installed libraries make of them.",
        compute_charts.compute,
        more=("dgemm", "linpack"),
    ),
    Section(
        "roofline",
        "Roofline",
        "peak",
        "Ceilings as measured here: memory bandwidth (triad) on the left, fp64 peak on the right. The ridge is "
        "the balance that a program needs to be limited by compute.",
        compute_charts.roofline,
    ),
    Section("io", "Storage", "io", "Direct reads and writes through fio.", charts.io),
    Section(
        "kernels",
        "Load kernels",
        "kernels",
        "Every variant of the kernels that programs are made of: arithmetic against the lines of 64 B that it "
        "moves from and to the level that holds its volume. Hollow marks are flagged.",
        compute_charts.kernel_rates,
    ),
    Section(
        "efficiency",
        "Parallel efficiency of kernels",
        "kernels",
        "Time of one thread over threads times the time of all, for the same units. Kernels that fight for lines "
        "on purpose are on the left; above 1 are those to which more cache falls.",
        compute_charts.kernel_efficiency,
    ),
    Section(
        "halo",
        "Communication: halo exchange",
        "halo",
        "Time in which each rank of a grid gets a row from every neighbour, by protocol; dashes tell the paradigm, "
        "bands are 95 % intervals. Click a name to see it alone.",
        comm.halo,
        more=("defects",),
        beside=comm.beside,
    ),
    Section(
        "halo_libraries",
        "Communication: halo exchange under two libraries",
        "halo",
        "Time under the second library over that under the first, by protocol; below 1 the second one is faster. "
        "Thick and grey: the best protocol of the one over the best of the other. Click a name to see it alone, "
        "with the intervals of both at their worst as a band.",
        comm.halo_libraries,
        beside=lambda r: comm.comparison_table(r, ranking.HALO),
        shown="drawn",
    ),
    Section(
        "pingpong",
        "Communication: one message",
        "pingpong",
        "Half of a round trip (send), or the time until a put or a get is there while the other rank does nothing.",
        comm.pingpong,
    ),
    Section(
        "pingpong_bandwidth",
        "Communication: bandwidth of one message",
        "pingpong",
        "The same as bytes a second, one message after the other.",
        comm.pingpong_bandwidth,
    ),
    Section(
        "pingpong_libraries",
        "Communication: one message under two libraries",
        "pingpong",
        "Time under the second library over that under the first. Below 1 the second one is faster.",
        comm.pingpong_libraries,
        beside=lambda r: comm.comparison_table(r, ranking.MESSAGE),
        shown="drawn",
    ),
    Section(
        "swap",
        "Communication: contention by distance",
        "swap",
        "Ranks i and i + j swap a message: time of all pairs at once, which is the slowest pair's, over that of "
        "the slowest of them alone. Where it is above 1 they share what lies between them. Bold: above 1.1 with "
        "its whole interval; a dashed frame is a flag.",
        swaps.contention,
        beside=swaps.contention_told,
        mapped=True,
    ),
    Section(
        "swap_pairs",
        "Communication: every pair",
        "swap",
        "Two ranks swap a message while all others wait: time of a short one, bandwidth of a long one, both "
        "directions together. The ring is the machine: its ranks in the order of its packages, nodes, caches and "
        "cores. Dashed is flagged.",
        swaps.pairs,
        beside=swaps.pairs_told,
        mapped=True,
        shown="drawn",
    ),
    Section(
        "collectives",
        "Communication: collectives",
        "allreduce",
        "What all ranks do together, the library's way and by other algorithms.",
        comm.collectives,
        more=("barrier", "bcast", "reduce", "alltoall", "exchange"),
    ),
    Section(
        "collectives_libraries",
        "Communication: collectives under two libraries",
        "allreduce",
        "Time under the second library over that under the first. Below 1 the second one is faster.",
        comm.collectives_libraries,
        more=("barrier", "bcast", "reduce", "alltoall", "exchange"),
        beside=lambda r: comm.comparison_table(r, ranking.COLLECTIVES),
        shown="drawn",
    ),
    Section(
        "anatomy",
        "Communication: a step taken apart",
        "anatomy",
        "Latency and bandwidth are what curves of the program's own operations say of its messages; imbalance is "
        "waiting for the rank that computes longest, other is the rest of its time in messages. The bar across "
        "is the step as measured. Right: the step with another latency, over the step as it is. Pale and hollow "
        "are flagged.",
        program_charts.anatomy,
        beside=lambda r: program_charts.tables(r, programs.ANATOMY),
    ),
    Section(
        "pop",
        "Communication: pop, an ocean's solver",
        "pop",
        "Where an iteration's time goes, by protocol and sums over all ranks, on the best grid. Parts are means "
        "over ranks; the bar across, with its 95 % interval, is the slowest rank's. Pale is flagged.",
        program_charts.pop,
        beside=lambda r: program_charts.tables(r, programs.POP),
    ),
    Section(
        "pop_grids",
        "Communication: pop by grid of ranks",
        "pop",
        "Each protocol with the better number of sums. Wide grids have few neighbours, square ones short sides.",
        program_charts.pop_grids,
        shown="drawn",
    ),
    Section(
        "gyro",
        "Communication: gyro, a field transposed",
        "gyro",
        "What of a step is spent in transposes between two layouts. Parts are means over ranks; the bar across is "
        "the slowest rank's. Pale is flagged.",
        program_charts.gyro,
        beside=lambda r: program_charts.tables(r, programs.GYRO),
    ),
    Section(
        "swim",
        "Communication: swim, shallow water",
        "swim",
        "Where a step's time goes, by protocol of the halo. Parts are means over ranks; the bar across is the "
        "slowest rank's. Pale is flagged.",
        program_charts.swim,
        beside=lambda r: program_charts.tables(r, programs.SWIM),
    ),
    Section(
        "npb",
        "Communication: NAS kernels",
        "npb",
        "Time of a solution, and the longest share of it that a rank spends in the library.",
        program_charts.npb,
        beside=program_charts.kernels_told,
    ),
)
