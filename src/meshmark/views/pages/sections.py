"""Defines the sections of a report: their charts, captions and details."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from meshmark.views.apps import phases, program_charts, programs
from meshmark.views.charts import applications, charts, comm, compute_charts, efficiency, experiments, loops, swaps
from meshmark.views.charts.drawing import Drawing
from meshmark.views.content import contention, ranking
from meshmark.views.render import render_sections
from meshmark.views.tables import TableSection


@dataclass(frozen=True, slots=True)
class ChartSection:
    """One chart of the report; `caption` explains how to read it.

    Attributes:
        more: Further instruments whose results the section's table contains.
        details: Renders what follows the chart; it is also shown if there is no chart.
        needs_topology: Whether `draw` and `details` also take the machine's topology.
        options: Options of the commands that measure what the chart needs, each with its instrument; () stands for the
            instrument alone.
        shown: `requested`: the section is shown if the run requested the instrument, with the reason if there are no
            results; `drawn`: it is shown only if there is a chart.
    """

    name: str
    title: str
    instrument: str
    caption: str
    draw: Callable[..., Drawing | None]
    more: tuple[str, ...] = ()
    details: Callable[..., str] | None = None
    needs_topology: bool = False
    options: tuple[str, ...] = ()
    shown: Literal["requested", "drawn"] = "requested"

    @property
    def offers(self) -> list[str]:
        """Return the commands that together measure what the chart needs."""
        return [f"meshmark measure {words}" for words in self.options or (self.instrument,)]

    def is_shown(self, requested: Collection[str], drawn: bool) -> bool:
        """Return whether the report of a run that requested these instruments contains the section."""
        return drawn or (self.shown == "requested" and not {self.instrument, *self.more}.isdisjoint(requested))


def _below(tables: Callable[..., Sequence[TableSection]], *arguments: object) -> Callable[..., str]:
    """Return a function that renders the tables of records below a chart."""
    return lambda records, *_: render_sections(tables(records, *arguments))


def _scaling(program: programs.StepDisplay) -> ChartSection:
    """Return the section of a program's phases over the number of ranks."""
    name = program.instrument
    return ChartSection(
        f"{name}_phases",
        f"Communication: {name}, phases over ranks",
        name,
        "Time of each phase over the number of ranks, both axes logarithmic: means over ranks, and the whole step of "
        "the slowest rank. Lines are fitted power laws, a × ranks to the power of the exponent; with two numbers of "
        "ranks, points are joined. Dotted: the whole step in inverse proportion to the ranks. Of steps that do the "
        "same work, the fastest with the most ranks is shown. Bars are 95 % intervals. Hollow: flagged.",
        phases.phase_chart(program),
        details=phases.phase_table(program),
        options=(f"{name} --ranks 1,2,all",),
        shown="drawn",
    )


SECTIONS = (
    ChartSection(
        "latency",
        "Latency by footprint",
        "latency",
        "Load-to-use latency of dependent loads that follow a random cycle over the footprint. Steps are levels of the "
        "memory hierarchy; bold values are the detected levels. Dotted: sizes of the caches that the kernel reports. "
        "The band is the 95 % interval.",
        charts.latency,
        needs_topology=True,
        options=("latency --footprint 2KiB..1GiB",),
    ),
    ChartSection(
        "strides",
        "Latency by stride",
        "latency",
        "Load-to-use latency at constant strides. Short strides benefit from prefetching and open DRAM pages; at long "
        "strides every load opens another page. Dashed: random access over the same footprint.",
        charts.strides,
        options=("latency --pattern stride --stride 64..64KiB --footprint 256MiB",),
    ),
    ChartSection(
        "company",
        "Latency with several CPUs",
        "latency",
        "Load-to-use latency in memory while several CPUs run the same access pattern at once.",
        charts.concurrent_latency,
        options=("latency --footprint 256MiB --processes 1..all",),
    ),
    ChartSection(
        "bandwidth",
        "Bandwidth by kernel",
        "bandwidth",
        "Net bytes, as STREAM counts them. Streaming stores bypass the caches and avoid the read for ownership of "
        "regular stores.",
        charts.bandwidth_kernels,
        options=("bandwidth --kernel copy,scale,add,triad,read,write,update",),
    ),
    ChartSection(
        "bandwidth_footprint",
        "Bandwidth by footprint",
        "bandwidth",
        "Regular stores are usually faster while the footprint fits in a cache, streaming stores beyond it. The "
        "crossover is the footprint at which a program should switch.",
        charts.bandwidth_footprint,
        options=("bandwidth --kernel triad --threads 1 --footprint 16KiB..1GiB",),
    ),
    ChartSection(
        "lines",
        "Core-to-core latency",
        "lines",
        "Time to transfer a cache line from one CPU to another.",
        charts.lines,
    ),
    ChartSection(
        "loaded",
        "Latency under load",
        "loaded",
        "Latency against total bandwidth. Chains: each CPU has that many independent loads in flight. Paced: one CPU "
        "measures latency beside CPUs that stream at a limited rate. Dotted: the knee, the highest bandwidth with a "
        "latency below 1.25 times the idle one, and the rate of triad.",
        charts.loaded,
        details=charts.loaded_details,
    ),
    ChartSection(
        "gups",
        "Random updates",
        "gups",
        "Updates of random table entries, one at a time (plain) or with software prefetching (ahead).",
        charts.gups,
    ),
    ChartSection(
        "compute",
        "Compute",
        "peak",
        "Peak rate of fused multiply-adds in registers; rates of linear algebra and transforms and their share of it.",
        compute_charts.compute,
        more=("dgemm", "linpack", "mod2d", "mod2e", "fft"),
        options=("peak", "dgemm", "linpack"),
    ),
    ChartSection(
        "roofline",
        "Roofline",
        "peak",
        "Measured ceilings: memory bandwidth (triad) on the left, fp64 peak on the right. A program is compute bound "
        "if its arithmetic intensity is above the ridge point.",
        compute_charts.roofline,
        options=("peak", "bandwidth --kernel triad"),
    ),
    ChartSection(
        "loops",
        "Vector loops by length",
        "loops",
        "Elements per second of short loops over vectors in the first-level cache. A loop of n elements takes about "
        "(n + h) / r: where h, the length that reaches half of the rate r, is small, long vectors gain little. Hollow: "
        "flagged.",
        loops.loops,
        details=loops.half_length_table,
        shown="drawn",
    ),
    ChartSection(
        "prefetch",
        "Software prefetch by distance",
        "prefetch",
        "Time of a read, in order or at random, by how many accesses earlier its line is prefetched. Hollow: flagged.",
        loops.prefetch,
        shown="drawn",
    ),
    ChartSection("io", "Storage", "io", "Direct reads and writes; on a host, fio measures them.", charts.io),
    ChartSection(
        "kernels",
        "Load kernels",
        "kernels",
        "All variants of the kernels that make up synthetic programs: arithmetic rate against the traffic in 64-byte "
        "lines with the level that holds the data. Hollow points are flagged.",
        compute_charts.kernel_rates,
    ),
    ChartSection(
        "efficiency",
        "Parallel efficiency of kernels",
        "kernels",
        "T(1) / (n × T(n)) for the same units of work. Super-linear: the whole 95 % interval is above 100\u00a0%, "
        "often because more threads have more cache. About 100 %: the whole interval is within 5\u00a0% of it. Kernels "
        "that contend for cache lines by design need several threads, and refer to the fewest. Dashed: linear speedup.",
        efficiency.kernel_efficiency,
        details=efficiency.efficiency_details,
        needs_topology=True,
        options=("kernels --threads 1,all",),
    ),
    ChartSection(
        "app",
        "Applications",
        "app",
        "What was varied, and the figure of merit or the elapsed time: the median and its 95 % interval. With several "
        "numbers of threads, copies or ranks, dotted lines continue from the fewest in proportion. Hollow: flagged.",
        applications.configurations,
        details=applications.details,
        shown="drawn",
    ),
    ChartSection(
        "composite",
        "Composite",
        "app",
        "Ratios of the members of a composite to its reference machine, above 1 if better: the median and its 95 % "
        "interval. Dashed: the reference and the geometric mean. Hollow: flagged.",
        applications.composites,
        shown="drawn",
    ),
    ChartSection(
        "experiment",
        "Experiment",
        "experiment",
        "Two settings in alternation: B over A of each pair of runs, in their order. The line is the median, the band "
        "its 95 % interval, which holds although the experiment was watched while it ran. Dashed: equality.",
        experiments.pairs,
        shown="drawn",
    ),
    ChartSection(
        "rating",
        "Rating",
        "rating",
        "Every run of each setting is a point; the line is the median. Settings of the same colour behave alike: their "
        "medians do not differ significantly or by more than the margin, and neither do the spreads of their runs.",
        experiments.ratings,
        shown="drawn",
    ),
    ChartSection(
        "profile",
        "Profile",
        "profile",
        "Time of programs beside neighbours that compute, fill caches, or transfer data from and to memory, divided by "
        "their time alone: every run, the median and its 95 % interval. Dashed: as alone.",
        experiments.slowdowns,
        shown="drawn",
    ),
    ChartSection(
        "halo",
        "Communication: halo exchange",
        "halo",
        "Time in which each rank of a grid receives a row from every neighbour, by protocol. Dash patterns distinguish "
        "paradigms; bands are 95 % intervals. Click a legend entry to isolate it.",
        comm.halo,
        more=("defects",),
        details=comm.halo_details,
    ),
    ChartSection(
        "halo_libraries",
        "Communication: halo exchange, library comparison",
        "halo",
        "Time with the second library divided by the time with the first, by protocol; below 1 the second library is "
        "faster. Thick grey line: best protocol of each library. Click a legend entry to isolate it; the band is a "
        "conservative interval from the intervals of both.",
        comm.halo_libraries,
        details=_below(ranking.comparison_sections, ranking.HALO),
        shown="drawn",
    ),
    ChartSection(
        "pingpong",
        "Communication: message latency",
        "pingpong",
        "Half of a round trip (send), or the time to complete a put or get while the other rank is idle.",
        comm.pingpong,
    ),
    ChartSection(
        "pingpong_bandwidth",
        "Communication: message bandwidth",
        "pingpong",
        "Bandwidth of consecutive messages, one at a time.",
        comm.pingpong_bandwidth,
    ),
    ChartSection(
        "pingpong_libraries",
        "Communication: messages, library comparison",
        "pingpong",
        "Time with the second library divided by the time with the first; below 1 the second library is faster.",
        comm.pingpong_libraries,
        details=_below(ranking.comparison_sections, ranking.MESSAGE),
        shown="drawn",
    ),
    ChartSection(
        "swap",
        "Communication: contention by distance",
        "swap",
        "Ranks i and i + j swap a message: time of the slowest pair when all run at once, divided by the time of the "
        "slowest pair alone. Above 1, pairs contend for a shared resource. Bold: the whole interval is above 1.1. "
        "Dashed frame: flagged.",
        swaps.contention,
        details=_below(contention.contention_sections),
        needs_topology=True,
    ),
    ChartSection(
        "swap_pairs",
        "Communication: all pairs of ranks",
        "swap",
        "Two ranks swap a message while all others are idle: time of a short message, bandwidth of a long one in both "
        "directions together. The ring shows the ranks in the order of packages, nodes, caches and cores. Dashed: "
        "flagged.",
        swaps.pairs,
        details=swaps.pair_details,
        needs_topology=True,
        shown="drawn",
    ),
    ChartSection(
        "collectives",
        "Communication: collectives",
        "allreduce",
        "Collective operations over all ranks: the library's implementation and other algorithms.",
        comm.collectives,
        more=("barrier", "bcast", "reduce", "alltoall", "exchange"),
    ),
    ChartSection(
        "collectives_libraries",
        "Communication: collectives, library comparison",
        "allreduce",
        "Time with the second library divided by the time with the first; below 1 the second library is faster.",
        comm.collectives_libraries,
        more=("barrier", "bcast", "reduce", "alltoall", "exchange"),
        details=_below(ranking.comparison_sections, ranking.COLLECTIVES),
        shown="drawn",
    ),
    ChartSection(
        "anatomy",
        "Communication: breakdown of a step",
        "anatomy",
        "Latency and bandwidth are derived from measured curves of the program's own operations. Imbalance is the wait "
        "for the rank that computes longest; other is the remaining communication time. Vertical mark: measured step. "
        "Right: step time with another latency, relative to the measured step. Pale or hollow: flagged.",
        program_charts.anatomy,
        details=_below(programs.program_sections, programs.ANATOMY),
    ),
    _scaling(programs.ANATOMY),
    ChartSection(
        "pop",
        "Communication: pop, an ocean model's solver",
        "pop",
        "Time per iteration by protocol and number of global reductions, on the best grid. Parts are means over ranks; "
        "the vertical mark, with its 95 % interval, is the slowest rank. Pale: flagged.",
        program_charts.pop,
        details=_below(programs.program_sections, programs.POP),
    ),
    _scaling(programs.POP),
    ChartSection(
        "pop_grids",
        "Communication: pop by grid of ranks",
        "pop",
        "Each protocol with its faster number of global reductions. Elongated grids have few neighbours, square grids "
        "short edges.",
        program_charts.pop_grids,
        shown="drawn",
    ),
    ChartSection(
        "gyro",
        "Communication: gyro, transposes of a field",
        "gyro",
        "Share of a step spent on transposes between two layouts. Parts are means over ranks; the vertical mark is the "
        "slowest rank. Pale: flagged.",
        program_charts.gyro,
        details=_below(programs.program_sections, programs.GYRO),
    ),
    _scaling(programs.GYRO),
    ChartSection(
        "swim",
        "Communication: swim, shallow water",
        "swim",
        "Time per step by halo protocol. Parts are means over ranks; the vertical mark is the slowest rank. Pale: "
        "flagged.",
        program_charts.swim,
        details=_below(programs.program_sections, programs.SWIM),
    ),
    _scaling(programs.SWIM),
    ChartSection(
        "swim_models",
        "Shallow water by programming model",
        "swim_threads",
        "Time per step of swim on the same grid, divided over threads of one process, or over ranks: the fastest pages "
        "or protocol of each. Threads read the rows of their neighbours where they are; ranks exchange them. "
        "Hollow: flagged.",
        program_charts.swim_models,
        details=_below(programs.model_sections),
    ),
    ChartSection(
        "npb",
        "Communication: NAS benchmarks",
        "npb",
        "Time to solution, the largest share of it that a rank spends in the MPI library, and how many times faster "
        "more ranks and threads are than one. Hollow: flagged.",
        program_charts.npb,
        details=_below(programs.kernel_sections),
    ),
)
