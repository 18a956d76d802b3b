"""The form of a shared result: a machine card reduced to what may be published.

A shared result is a card (`measure/importers/card.py`) that other commands read, too. It contains only the fields and
words below, so nothing else of a run can get into it: no name of a host or user, no serial number, address or path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, TypeAdapter

from meshmark.measure.importers.card import SCHEMA, TYPE
from meshmark.store.record import BETTER, FLAGS, Scalar
from meshmark.values.inputs import LIST, Input, OneOf, checked

FORM: Final = 1  # version of this form
MAX_BYTES: Final = 50_000
MAX_SAMPLES: Final = 13  # of each result
MAX_PAIRS: Final = 64  # CPUs of the table of transfers between CPUs

# Metrics by instrument that are shared, the most important first: they stay if the file becomes too large.
METRICS: Final = (
    ("latency", "level_latency"),
    ("latency", "level_capacity"),
    ("bandwidth", "bandwidth_net"),
    ("clock", "core_frequency"),
    ("peak", "flop_rate"),
    ("dgemm", "flop_rate"),
    ("linpack", "flop_rate"),
    ("gups", "update_rate"),
    ("latency", "load_latency"),
    ("lines", "line_latency"),
    ("loaded", "memory_parallelism"),
    ("loaded", "knee_bandwidth"),
    ("loaded", "load_latency"),
    ("loaded", "bandwidth_net"),
    ("io", "bandwidth_net"),
    ("io", "operation_latency"),
)
_ISA: Final = frozenset({"best", "all", "sse2", "avx2", "avx512", "neon", "sve", "scalar"})
_PARTS: Final = frozenset({"cpu", "core", "cache", "node", "package", "machine"})
# Words of the conditions that are texts. A result with another word is left out.
WORDS: Final = {
    "kernel": frozenset({"copy", "scale", "add", "triad", "read", "write", "update", "plain", "ahead"}),
    "store": frozenset({"ordinary", "streaming"}),
    "isa": _ISA,
    "chosen_isa": _ISA,
    "fill": frozenset({"cores", "spread", "compact"}),
    "mode": frozenset({"threads", "processes", "chains", "paced"}),
    "pages": frozenset({"4KiB", "16KiB", "64KiB", "thp", "2MiB", "32MiB", "512MiB", "1GiB", "16GiB"}),
    "pattern": frozenset({"random", "stride"}),
    "state": frozenset({"swap", "flag", "dirty", "clean"}),
    "trip": frozenset({"one_way", "round"}),
    "type": frozenset({"fp64", "fp32", "int"}),
    "kind": frozenset({"cache", "memory"}),
    "direction": frozenset({"read", "write", "randread", "randwrite"}),
    "target_kind": frozenset({"folder", "file", "device"}),
    "memory_node": frozenset({"local", "interleave"}),  # or a number
    "library": frozenset(
        {"OpenBLAS", "OpenBLAS of NumPy", "OpenBLAS of SciPy", "MKL", "BLIS", "ATLAS", "ArmPL", "NVPL"}
    ),
    "clock": frozenset({"tsc", "cntvct", "monotonic", "realtime"}),
    "shield": frozenset({"fifo", "fifo+hold", "none"}),
    "cpus_within": _PARTS,
    "cpus_fill": _PARTS,
    "memory_place": frozenset({"local", "remote", "mixed", "interleaved"}),
    "memory_level": frozenset({"L1", "L2", "L3", "L4", "memory"}),
}
NUMBERS: Final = frozenset(
    [
        "footprint_bytes",
        "stride_bytes",
        "locality_bytes",
        "processes",
        "page_bytes",
        "cpu",
        "memory_node",
        "level",
        "from_bytes",
        "to_bytes",
        "next_bytes",
        "claimed_bytes",
        "threads",
        "prefetch_bytes",
        "from_cpu",
        "to_cpu",
        "home_node",
        "chains",
        "pause",
        "read_share",
        "best_chains",
        "latency_at_knee",
        "table_bytes",
        "lookahead",
        "n",
        "block_bytes",
        "queue_depth",
        "jobs",
        "size_bytes",
        "direct",
        "huge_share",
        "observed_node_share",
        "steal_share",
        "others_share",
        "canary_ratio",
        "disturbed_share",
        "load_1min",
        "interval_asked",
        "runs",
        "run_spread",
        "run_low",
        "run_high",
        "run_modes",
    ]
)
# What processors call their vendor; Arm's are numbers.
VENDOR: Final = "AuthenticAMD|GenuineIntel|HygonGenuine|CentaurHauls|Shanghai|IBM|0x[0-9a-f]{1,4}|unknown"
_CPUS: Final = re.compile(r"[0-9]{1,5}(?:[-,][0-9]{1,5}){0,200}")
CPU_LISTS: Final = frozenset({"cpus"})
BUILD: Final = r"[0-9a-z.+-]{1,40}"
COMPILER: Final = r"(?:g\+\+|clang\+\+) [0-9.]{1,12}(?: -[A-Za-z0-9=_+-]{1,40}){0,8}"
# A model name that does not begin like this is replaced by vendor and numbers: a hypervisor can report any text.
MODEL: Final = re.compile(
    r"(?:AMD|Intel|Genuine Intel|INTEL|ARM|Arm|Neoverse|Cortex|Ampere|Apple|Fujitsu|A64FX|IBM|POWER|Power|Hygon|Huawei|"
    r"Kunpeng|Phytium|Loongson|NVIDIA|Grace|Marvell|Cavium|ThunderX|Qualcomm|AWS|Graviton|Zhaoxin|VIA|SiFive)\b"
    r"[A-Za-z0-9 ()@.,+-]{0,60}"
)


def condition_problem(key: str, value: object) -> str:
    """Return why a condition cannot be shared; "" if it can."""
    if value is None or (key in NUMBERS and isinstance(value, int | float)):
        return "" if key in NUMBERS or key in WORDS else f"found {key!r}; it is not shared"
    if key in CPU_LISTS and isinstance(value, str) and _CPUS.fullmatch(value):
        return ""
    if key in WORDS:
        return "" if value in WORDS[key] else f"{key}: found {value!r}; allowed: {', '.join(sorted(WORDS[key]))}"
    return f"found {key!r}; it is not shared"


def _conditions(conditions: dict[str, Scalar]) -> dict[str, Scalar]:
    for key, value in conditions.items():
        if problem := condition_problem(key, value):
            raise ValueError(problem)
    return conditions


def _matching(pattern: str, allowed: str) -> Any:
    return Field(pattern=f"^(?:{pattern})$", description=allowed)


Token = Annotated[str, _matching(r"[A-Za-z0-9_.+-]{1,40}", "letters, digits, _ . + and -")]
Title = Annotated[str, _matching(r"[^\W_][\w .,()+-]{0,79}", "at most 80 letters, digits, spaces and . , ( ) + - _")]
Model = Annotated[
    str,
    _matching(
        rf"{MODEL.pattern}|(?:{VENDOR}) family \w{{1,8}} model \w{{1,8}}|unknown processor",
        "the model of a processor",
    ),
]
Vendor = Annotated[str, _matching(VENDOR, "a vendor of processors")]
Digits = Annotated[str, _matching(r"(?:0x)?[0-9a-fA-F]{1,16}", "a number")]
Day = Annotated[str, _matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date such as 2026-11-30")]
Build = Annotated[str, _matching(BUILD, "a version")]
Compiler = Annotated[str, _matching(COMPILER, "a compiler, its version and options")]
Row = Annotated[
    str, _matching(r"(?:[0-9]{1,7}(?:\.[0-9]{1,3})?|-)(?: (?:[0-9]{1,7}(?:\.[0-9]{1,3})?|-))*", "numbers and -")
]
Count = Annotated[int, Field(ge=0, le=1 << 20)]
Bytes = Annotated[int, Field(ge=0, le=1 << 53)]
Flags = Annotated[tuple[Annotated[str, OneOf(tuple(sorted(FLAGS)))], ...], LIST]
Interval = Annotated[tuple[float, float], LIST]
Samples = Annotated[tuple[float, ...], LIST, Field(min_length=1, max_length=MAX_SAMPLES)]
Conditions = Annotated[dict[str, Scalar], AfterValidator(_conditions)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachesOfLevel(Input):
    """The caches of one level and kind: `count` of them, each shared by `shared_by` CPUs."""

    level: Annotated[int, Field(ge=1, le=5)]
    kind: Annotated[str, OneOf(("data", "instruction", "unified"))]
    size_bytes: Bytes | None
    shared_by: Count
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor(Input):
    """The identity that the processors report."""

    model: Model
    vendor: Vendor
    family: Digits | None = None
    model_number: Digits | None = None
    stepping: Digits | None = None
    microcode: Digits | None = None
    claimed_hz: Annotated[float, Field(gt=0, le=1e11)] | None = None
    isa: Annotated[tuple[Token, ...], LIST, Field(max_length=100)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Input):
    """The facts of the machine."""

    cpu: Processor
    packages: Count
    nodes: Count
    cores: Count
    cpus: Annotated[int, Field(ge=1, le=1 << 20)]
    caches: Annotated[tuple[CachesOfLevel, ...], LIST, Field(max_length=20)] = ()
    distances: Annotated[tuple[Annotated[tuple[float, ...], LIST], ...], LIST, Field(max_length=64)] = ()
    memory_bytes: Bytes | None = None
    memory_channels: Count | None = None
    memory_transfers_per_s: Annotated[float, Field(gt=0, le=1e12)] | None = None
    memory_peak_bytes_per_s: Annotated[float, Field(gt=0, le=1e14)] | None = None
    guest: bool | None = None
    kernel: Token | None = None
    thp: Annotated[str, OneOf(("always", "madvise", "never"))] | None = None
    governor: Token | None = None
    boost: bool | None = None
    smt_active: bool | None = None
    numa_balancing: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Input):
    """A result. Of many samples the file has a part that has the same median and the same interval."""

    samples: Samples
    value: float | None = None
    interval: Interval | None = None
    flags: Flags = ()
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance(Input):
    """Version and compiler of the measuring programs."""

    build: Build | None = None
    compiler: Compiler | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Input):
    """The results of a metric, with what they have in common."""

    step: Annotated[str, OneOf(("shared",))]
    source: Annotated[str, OneOf(("host",))]
    machine: Token
    instrument: Token
    metric: Token
    unit: Annotated[str, Field(max_length=20)]
    better: Annotated[str, OneOf(tuple(sorted(BETTER)))]
    conditions: Conditions
    provenance: Provenance
    results: Annotated[tuple[Result, ...], LIST, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Input):
    """A key figure in the SI unit `unit`; `samples` is their number in the run."""

    title: Title
    value: float
    unit: Annotated[str, Field(max_length=20)]
    interval: Interval | None
    best: float | None
    spread: float | None
    samples: Annotated[int, Field(ge=1)]
    flags: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers(Input):
    """Latency of a transfer from the CPU of the row to the CPU of the column, one way, in nanoseconds; -: none.

    A row is one text, so that a file of many CPUs stays short.
    """

    cpus: Annotated[tuple[Count, ...], LIST, Field(min_length=2, max_length=MAX_PAIRS)]
    ns: Annotated[tuple[Row, ...], LIST, Field(min_length=2, max_length=MAX_PAIRS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Input):
    """A metric that made the file too large."""

    instrument: Token
    metric: Token
    results: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResult(Input):
    """A shared result of one machine."""

    type: Annotated[str, OneOf((TYPE,))]
    schema: Annotated[int, Field(ge=SCHEMA, le=SCHEMA)]
    shared: Annotated[int, Field(ge=FORM, le=FORM)]
    title: Title
    machine: Token
    run: Token
    started: Day
    version: Build
    figures: dict[Token, Figure]
    host: Host
    transfers: Transfers | None = None
    absent: Annotated[tuple[()], LIST] = ()
    left_out: Annotated[tuple[LeftOut, ...], LIST] = ()
    records: Annotated[tuple[Group, ...], LIST, Field(min_length=1)]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of this form, `schema/shared-result.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(SharedResult).json_schema(),
    }


def read_form(raw: object, where: str) -> SharedResult:
    """Return a shared result from parsed JSON.

    Raises:
        UsageError: A field is unknown, missing or has another value than the form allows. The message names it.
    """
    return checked(SharedResult, raw, where)
