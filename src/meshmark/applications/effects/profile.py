"""Reads the hottest functions of a configuration from the output of `perf report`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from meshmark.experiments.trial import printable

KEPT: Final = 20  # maximum number of functions of a configuration
FIELDS: Final = "comm,dso,sym"  # sort keys of perf, in the order that `read_report` expects
SAMPLES: Final = 20_000  # samples per profile if the frequency allows; a share of one half is then known to 0.7 %
FREQUENCIES_HZ: Final = (49, 3999)  # odd, so that samples do not keep step with timers of the kernel
_HARNESS: Final = frozenset({"meshmark-place", "perf", "perf-exec"})  # programs that start the command
_CONFIDENCE: Final = 0.95
_ADDRESS: Final = re.compile(r"(0x)?[0-9a-f]{8,16}")
_KERNEL: Final = "[kernel.kallsyms]"


@dataclass(frozen=True, slots=True)
class FunctionSamples:
    """A function in which samples were taken. Samples in functions that it called do not count.

    Attributes:
        object: File that contains the function; `kernel` for the kernel.
        share: Share of all samples of the program.
        interval: 95 % interval of the share.
    """

    function: str
    object: str
    samples: int
    share: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of one run of a configuration.

    Attributes:
        reason: Reason why there is no profile; "" if there is one.
        enable: Change that would make the profile available.
        tool: The profiler and its version.
        event: Event that triggered the samples, such as `cycles` or `cpu-clock`; `:u` means in user mode only.
        frequency_hz: Requested number of samples per second of CPU time.
        samples: Number of samples of the program.
        lost: Number of samples that the profiler could not write.
        file: File of the profile; "" if it was not kept.
        functions: The functions with the most samples, in descending order.
    """

    configuration: str
    reason: str = ""
    enable: str = ""
    tool: str = ""
    event: str = ""
    frequency_hz: int = 0
    samples: int = 0
    lost: int = 0
    file: str = ""
    functions: tuple[FunctionSamples, ...] = field(default=())

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Profile:
        """Return the profile that a line of the journal describes.

        Raises:
            ValueError, TypeError: The line is not a profile.
        """
        fields = {k: v for k, v in line.items() if k not in ("type", "functions")}
        functions = tuple(
            FunctionSamples(**{**f, "interval": tuple(f.get("interval", ()))}) for f in line.get("functions", ())
        )
        if any(len(f.interval) != 2 for f in functions):
            raise ValueError("an interval without two ends")
        return Profile(**fields, functions=functions)

    def to_json(self) -> dict[str, Any]:
        """Return the line of the journal, of type `profile`."""
        return {"type": "profile", **asdict(self)}


def frequency_hz(cpu_s: float) -> int:
    """Return the frequency, within `FREQUENCIES_HZ`, with which a run of this CPU time has about `SAMPLES` samples."""
    low, high = FREQUENCIES_HZ
    return int(min(max(SAMPLES / max(cpu_s, 1e-3), low), high)) | 1


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of the share `count / of`.

    Args:
        count: Number from 0 to `total`.
        total: Total number, at least 1.

    Source:
        Wilson, J. Amer. Statist. Assoc. 22 (1927), 209-212.
    """
    from scipy.stats import binomtest

    low, high = binomtest(count, total).proportion_ci(_CONFIDENCE, "wilson")
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report. `functions` are the `KEPT` hottest functions."""

    event: str
    samples: int
    lost: int
    functions: tuple[FunctionSamples, ...]


def read_report(lines: Iterable[str]) -> Report:
    """Read the output of `perf report --stdio -n --sort comm,dso,sym` with tabs between the columns.

    Samples of the programs that start the command do not count. Samples at addresses without a symbol are added up for
    each file.
    """
    counts: Counter[tuple[str, str]] = Counter()
    events: list[str] = []
    lost_samples = 0
    for line in lines:
        if line.startswith("#"):
            if match := re.search(r" of events? '(.+)'", line):
                events.append(_event(match[1]))
            elif match := re.search(r"Total Lost Samples: (\d+)", line):
                lost_samples += int(match[1])
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 5 or not cells[1].isdecimal() or cells[2] in _HARNESS:
            continue
        counts[_function(cells[4]), _object(cells[3])] += int(cells[1])
    total = counts.total()
    # Functions with equal counts are sorted by name, so that the same samples give the same list.
    hottest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:KEPT]
    return Report(
        " ".join(dict.fromkeys(events)),
        total,
        lost_samples,
        tuple(FunctionSamples(f, o, n, n / total, wilson(n, total)) for (f, o), n in hottest if n),
    )


def _event(text: str) -> str:
    """Return the name of an event without its precision, for example `cycles:u` for `cycles:Pu`."""
    name, colon, modifiers = printable(text).partition(":")
    rest = re.sub("[pP]", "", modifiers)
    return name + (colon + rest if rest else "")


def _function(text: str) -> str:
    """Return a symbol without the mark of its privilege level, such as `[.]` and `[k]`."""
    name = re.sub(r"^\[.\]\s*", "", text)
    return "[unknown]" if not name or _ADDRESS.fullmatch(name) else printable(name)


def _object(text: str) -> str:
    return "kernel" if text.startswith(_KERNEL) else printable(text) or "[unknown]"
