"""Study: pairwise slowdown of classes of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.calibration.variants import LEVELS, Variant
from meshmark.load.studies.cells import LEAD_S, OUTLASTS, member
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint
from meshmark.load.studies.study import Study
from meshmark.values.inputs import quoted_value

MEMORY_BOUND: Final = ("stream", "irregular", "stencil", "solver", "dense", "compute", "integer", "spectral")


def kernel_class(name: str) -> Callable[[Variant], bool]:
    """Return the filter of a class: a kind (`stream`), a kernel (`triad`), or either at a level (`stream@memory`).

    Raises:
        UsageError: The level is unknown.
    """
    kind, separator, level = name.partition("@")
    if separator and level not in LEVELS:
        raise UsageError(f"classes: found {quoted_value(name)}; allowed levels: {', '.join(LEVELS)}")
    return lambda v: kind in (v.kind, v.kernel) and (not separator or v.served_by == level)


@dataclass(kw_only=True)
class MatrixStudy(Study):
    """Slowdown of fixed work of each class next to a program of each class.

    The two programs swap CPUs with each repetition, so that differences between the CPUs cancel out. The first two CPUs
    are used.

    Attributes:
        classes: See `kernel_class`; empty: for each kind, the sequential variants served by memory, if there are any.
        run_time_s: Run time of the measured program alone.
    """

    study = "interference_matrix"
    measured = ("measured",)
    needs_two_cpus = True
    classes: Sequence[str] = ()
    run_time_s: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        sequential = [v for v in self.variants if v.threads == 1]
        available = {v.kind for v in sequential if v.served_by == "memory"}
        self.classes = tuple(dict.fromkeys(self.classes)) or tuple(
            f"{kind}@memory" for kind in MEMORY_BOUND if kind in available
        )
        if not self.classes:
            raise UsageError("classes: the calibration data have no sequential variant served by memory; name classes")
        for name in self.classes:
            if not any(map(kernel_class(name), sequential)):
                kinds = ", ".join(sorted({v.kind for v in sequential}))
                raise UsageError(
                    f"classes: found {quoted_value(name)}; allowed: kernels and kinds ({kinds}), also with @LEVEL"
                )
        self.columns = ("measured \\ beside", *self.classes)

    @property
    def cells(self) -> dict[tuple[str, str], StudyPoint]:
        """Return the points by class of the measured program and class of its neighbour."""
        return {(str(p.conditions["class"]), p.label): p for p in self.points}

    def groups(self) -> list[list[StudyCell]]:
        """Return a group per measured class: alone, and beside each class."""
        files = {}
        for name in self.classes:
            # Idle and system kernels are used only if `kernels` names them.
            kernels = tuple(sorted({v.kernel for v in self.variants if v.threads == 1 and kernel_class(name)(v)}))
            target = self.target(self.run_time_s, kernels=kernels, least_kernels=1, most_share=1.0, name=name[:60])
            files[name] = self.maker.file(name, target, only=kernel_class(name), rounds=0)
        one, two = self.cpus[:2]
        return [
            [
                self.cell(f"{a} alone", *([member("measured", files[a], [(c,)])] for c in (one, two))),
                *(
                    self.cell(
                        f"{a} beside {b}",
                        *(
                            [
                                member("measured", files[a], [(x,)], start_s=LEAD_S),
                                member("neighbour", self.maker.longer(files[b], OUTLASTS), [(y,)]),
                            ]
                            for x, y in ((one, two), (two, one))
                        ),
                        x=i,
                        label=b,
                        conditions={"class": a, "neighbour": b},
                    )
                    for i, b in enumerate(self.classes)
                ),
            ]
            for a in self.classes
        ]

    def conclude(self) -> str:
        """Make a row per measured class."""
        cells = self.cells
        for a in self.classes:
            points = [cells.get((a, b)) for b in self.classes]
            row = [a, *(f"{p.slowdown.ratio:.3f}" if p else "absent" for p in points)]
            self.rows.append((row, frozenset[str]().union(*(p.flags for p in points if p))))
        return super().conclude()
