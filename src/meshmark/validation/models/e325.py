"""Statements on IBM eServer 325."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from meshmark.model.engine import ask, median_of
from meshmark.model.machine import data_rate_mhz
from meshmark.model.workloads import stream_actor, stream_trial
from meshmark.validation.models.base import (
    StatementResult,
    check,
    machine,
    relation,
    triad,
    within_limits,
    within_percent,
)


@check("B01")
def peaks() -> StatementResult:
    modelled = [8 * 0.533, 8 * 0.8, 16 * data_rate_mhz(2000, 166.6667) / 1000, 16 * data_rate_mhz(2000, 200) / 1000]
    return relation(
        all(abs(o / p - 1) <= 0.0135 for o, p in zip(modelled, (4.3, 6.4, 5.3, 6.4), strict=True)),
        ", ".join(f"{v:.2f}" for v in modelled) + " GB/s",
        numbers=modelled,
    )


ONE_CHANNEL: Final = "memory.channel_bytes=8"


DDR266: Final = "memory.ratchet_mhz=133.3333"


def e325_triad(*settings: str, cpus: Sequence[int] = (0, 1), homes: Any = "local") -> float:
    """Return the rate of the triad with streaming stores in GB/s."""
    return triad(machine("e325", *settings), cpus, "streaming", homes=homes) / 1e9


@check("B02")
def triad_of_four_channels() -> StatementResult:
    return within_percent(e325_triad(), 7.3, 5, "GB/s")


@check("B03")
def triad_of_one_channel_each() -> StatementResult:
    return within_percent(e325_triad(ONE_CHANNEL), 4.6, 5, "GB/s")


def efficiency(*settings: str) -> float:
    """Return the rate of the triad over the theoretical bandwidth of two channels."""
    m = machine("e325", *settings)
    return e325_triad(*settings) / (2 * float(m.resolved()["memory"]["channel_gb_per_s"]))


@check("B04")
def ddr266_more_efficient() -> StatementResult:
    pairs = [(efficiency(DDR266), efficiency()), (efficiency(DDR266, ONE_CHANNEL), efficiency(ONE_CHANNEL))]
    text = ", ".join(f"{100 * a:.1f} > {100 * b:.1f} %" for a, b in pairs)
    return relation(all(a > b for a, b in pairs), text, numbers=[a / b for a, b in pairs])


@check("B05")
def ddr333_over_ddr266() -> StatementResult:
    one_channel_gain = 100 * (e325_triad(ONE_CHANNEL) / e325_triad(ONE_CHANNEL, DDR266) - 1)
    four_channels_gain = 100 * (e325_triad() / e325_triad(DDR266) - 1)
    inside = abs(one_channel_gain - 25) <= 2 and abs(four_channels_gain - 19) <= 2
    return StatementResult(
        f"{one_channel_gain:.1f} and {four_channels_gain:.1f} %",
        inside,
        "" if inside else "depends on the outstanding loads of a core and the controller cycles per line",
        numbers=(one_channel_gain, four_channels_gain),
    )


@check("B06")
def slope_over_clock() -> StatementResult:
    slope = (e325_triad() - e325_triad("cpu.clock_ghz=1.4")) * 1000 / 600
    finding = within_percent(slope, 2.0, 15, "MB/s per MHz")
    return replace(finding, why="follows the assumed number of outstanding loads of a core")


@check("B07")
def faster_clock_is_slower() -> StatementResult:
    change = 100 * (e325_triad("cpu.clock_ghz=2.2") / e325_triad() - 1)
    return within_limits(change, -2.5, 0.5, "%", "the parts that scale with the core clock are assumed")


@check("B08")
def data_rates_by_clock() -> StatementResult:
    modelled = [data_rate_mhz(f, 500 / 3) for f in (1400, 1600, 1800, 2000, 2200)]
    return relation(
        all(abs(o - p) <= 1 for o, p in zip(modelled, (311, 320, 327, 333, 314), strict=True)),
        ", ".join(f"{v:.0f}" for v in modelled) + " MHz",
        numbers=modelled,
    )


@check("B09")
def ddr400_has_no_ratchet() -> StatementResult:
    modelled = [data_rate_mhz(f, 200) for f in (1400, 1600, 1800, 2000, 2200)]
    return relation(all(abs(o - 400) < 1e-6 for o in modelled), "400 MHz at all five clocks", numbers=modelled)


@check("B10")
def second_dimm_per_channel() -> StatementResult:
    four_banks, eight_banks = (
        triad(machine("e325", "memory.page_bytes=8192", "memory.activate_ns=30", f"memory.banks={b}"), [0], "streaming")
        for b in (4, 8)
    )
    gain = 100 * (eight_banks / four_banks - 1)
    # The figure can be read to a quarter of a per cent: 1.5 % stands for 1.25 to 1.75 %, so no gain is outside.
    inside = abs(gain - 1.5) <= 0.25
    return StatementResult(
        f"{gain:+.2f} % from 4 to 8 banks",
        inside,
        "" if inside else "the bank model hides activations behind other banks; the loss with 1 GB modules neither",
        numbers=(eight_banks / four_banks,),
    )


@check("B11")
def slots_make_no_difference() -> StatementResult:
    return StatementResult("0 %", True, "the model has channels and banks but no slots")


@check("B12")
def numa_kernel_over_smp() -> StatementResult:
    m = machine("e325")
    actors = [stream_actor(m, [c], "triad", "streaming", [0], group=c) for c in (0, 1)]
    groups = ask(m, [stream_trial(actors)])[0]["groups"]
    # STREAM ends with its slower thread, which accesses remote memory.
    numa, smp = e325_triad(), 2 * min(median_of(g["bytes_per_s"]) for g in groups) / 1e9
    inside = abs(numa / 7.331 - 1) <= 0.1 and abs(smp / 3.694 - 1) <= 0.1
    return StatementResult(
        f"{1000 * numa:.0f} and {1000 * smp:.0f} MB/s",
        inside,
        "" if inside else "assumes the memory of both threads on one node",
        numbers=(numa, smp),
    )


@check("B13")
def one_thread_has_two_levels() -> StatementResult:
    # One thread with local memory. CPU A has two populated channels, CPU B one.
    levels = [e325_triad(cpus=[0]), e325_triad(ONE_CHANNEL, cpus=[0])]
    values = {round(levels[n % 2], 6) for n in range(10)}
    return StatementResult(
        ", ".join(f"{v:.2f}" for v in sorted(values)) + " GB/s",
        len(values) == 2,
        "that a thread stays on one of two unequal CPUs is an input",
        numbers=tuple(sorted(values)),
    )


@check("B14")
def spread_of_kernels() -> StatementResult:
    return StatementResult("not modelled", None, "operating system noise is not modelled")
