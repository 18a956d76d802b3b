"""Builds build/gallery: a first page, and reports of this host, of three modelled machines and of a synthetic fleet.

The report of this host is made from the newest complete `meshmark survey --quick` of this machine and this version. If
no run is one, a survey is measured now, or an interrupted one is resumed. Everything else is the same at every build. A
part replaces its folder when it is complete, so an interrupted build is completed by the next one. A part that fails is
reported in one line, and the others are built.

example: .venv/bin/python docs/gallery.py gs1280-64 fleet
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import altair as alt
import synthetic_fleet

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.fleet.folder import Fleet
from meshmark.fleet.overview import Overview, overview
from meshmark.fleet.site import load_site
from meshmark.native import VERSION
from meshmark.store.files import read_text, write_text
from meshmark.store.record import Record
from meshmark.store.run import Absence, RunInfo
from meshmark.values.paths import data_home, default_store
from meshmark.views.charts.drawing import chart_of, charts_or_reason, drawing
from meshmark.views.pages.fleet import fleet_page, places
from meshmark.views.render import render

ROOT: Final = Path(__file__).resolve().parent.parent
TEMPLATES: Final = ROOT / "docs" / "templates"
SPEC: Final = "quick"  # survey of this host


@dataclass(frozen=True, slots=True)
class Part:
    """A report of the gallery.

    Attributes:
        name: Name of its folder.
        kind: Where the data come from, in two or three words.
        sentence: Description on the first page.
        notice: Text at the top of the report.
        warning: Whether the text is a warning that nobody can overlook.
        picture: Description of the picture, for those who cannot see it.
        build: Writes `report.html` and `picture.png` to a folder.
    """

    name: str
    title: str
    kind: str
    sentence: str
    notice: str
    picture: str
    build: Callable[[Path], None]
    warning: bool = False


# ------------------------------------------------------------------ this host


def host_run(runs: Path, store: Path) -> Path:
    """Return the folder of a complete quick survey of this machine and this version; measure if no run is one.

    Raises:
        MeshmarkError: Nothing could be measured, or the folder cannot be written.
    """
    from meshmark.machine.facts import host_id
    from meshmark.measure.runs.plan import SurveyPlan
    from meshmark.measure.survey import load_run, run_survey, surveys

    ours: list[tuple[str, bool, Path]] = []
    for folder in surveys(runs):
        try:
            _, _, run = load_run(folder)
            steps = len(SurveyPlan.load(folder / "plan.json").steps)
        except MeshmarkError as error:
            print(f"gallery: left out: {error}", file=sys.stderr)
            continue
        if (host_id(run.host), run.version, run.spec_name) == (host_id(), VERSION, SPEC):
            ours.append((run.started, len(run.steps) == steps, folder))
    if complete := [folder for _, is_complete, folder in sorted(ours) if is_complete]:
        return complete[-1]
    interrupted = max(ours)[2] if ours else None
    return run_survey(
        spec=SPEC,
        folder=interrupted,
        runs=runs,
        store_folder=store,
        resume=interrupted is not None,
        command=f"meshmark survey --{SPEC}",
        progress=lambda _: lambda *_: None,
        notify=lambda text: print(text, file=sys.stderr),
    )


def write_host(out: Path) -> None:
    """Write the report of this host as `meshmark report` does."""
    from meshmark.measure.survey import load_run_and_steps
    from meshmark.store.store import Store
    from meshmark.views.content.strengths import earlier_runs
    from meshmark.views.pages.build import write_report

    folder = host_run(data_home() / "runs", default_store())
    (records, absences, run), steps = load_run_and_steps(folder)
    earlier = earlier_runs(records, run, Store(default_store()))
    paths = write_report(records, absences, run, out, earlier, steps)
    choose_picture(paths.charts, out, "latency", paths.undrawn)


HOST: Final = Part(
    "host",
    "This host",
    "measured",
    "A survey of two minutes: what the machine is good and bad at, how far the numbers can be trusted, and every "
    "result with its interval and its conditions.",
    f"The machine that built this gallery, by meshmark survey --{SPEC}.",
    "chart of the latency by footprint",
    write_host,
)


# ------------------------------------------------------------------ models


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A report of a modelled machine.

    Attributes:
        nodes: Memory nodes at different distances from CPU 0.
        picture: The chart that is the picture.
    """

    name: str
    nodes: str
    picture: str

    def requests(self) -> Iterable[tuple[str, dict[str, str]]]:
        """Yield the instruments to run and their options."""
        near_and_far = {"memory_node": self.nodes}
        yield "latency", {"footprint": "4KiB..1GiB", **near_and_far}
        yield "latency", {"pattern": "stride", "footprint": "256MiB", "stride": "64..64KiB", **near_and_far}
        yield "latency", {"footprint": "256MiB", "processes": "1..all", **near_and_far}
        yield "bandwidth", {"kernel": "copy,scale,add,triad,read,write", "threads": "1..all"}
        yield "bandwidth", {"kernel": "triad", "footprint": "16KiB..1GiB", "threads": "1"}
        yield "lines", {"cpus": "all"}
        yield "loaded", {"threads": "all", "memory_node": "local"}
        yield "loaded", {"threads": "all", "memory_node": "all"}
        yield "gups", {"threads": "1..all"}
        yield "peak", {"threads": "1,all"}
        yield "io", {"jobs": "1..all"}

    def write(self, out: Path) -> None:
        """Simulate all instruments and write the report."""
        from meshmark.model.machine import find_machine
        from meshmark.model.single import measure
        from meshmark.views.pages.build import write_report

        machine = find_machine(self.name)
        records: list[Record] = []
        absences: list[Absence] = []
        for instrument, options in self.requests():
            words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
            command = [instrument, "--on", self.name, *words]
            try:
                records += measure(instrument, machine, options, command, on_absence=absences.append)
            except AbsentError as error:
                absences.append(Absence(instrument=instrument, reason=str(error).partition(": ")[2], enable=error.hint))
        run = RunInfo(
            run_id=self.name,
            machine=machine.label,
            started="",
            elapsed_s=0.0,
            spec_name="",
            command="",
            version=VERSION,
        )
        paths = write_report(records, absences, run, out)
        choose_picture(paths.charts, out, self.picture, paths.undrawn)

    def part(self, title: str, sentence: str, picture: str) -> Part:
        """Return the part of the gallery."""
        notice = (
            "A simulation, not a measurement. Commands of the form "
            f"meshmark measure latency --on {self.name} repeat it; each section lists its commands."
        )
        return Part(self.name, title, "modelled", sentence, notice, picture, self.write)


MODELS: Final = (
    ModelReport("gs1280-64", "0,1,9,27,36", "lines").part(
        "HP AlphaServer GS1280, 64 CPUs",
        "A torus of 64 processors: memory eight hops away takes more than three times as long as local memory, and "
        "accesses to all nodes reach a quarter of the bandwidth of local accesses.",
        "map of the core-to-core latency between 64 CPUs",
    ),
    ModelReport("gs320-32", "0,7", "loaded").part(
        "Compaq AlphaServer GS320, 32 CPUs",
        "Eight building blocks of four processors behind a central switch: there are only two distances, and the "
        "switch limits what all processors reach together.",
        "chart of the latency under load",
    ),
    ModelReport("xeon5500", "all", "bandwidth").part(
        "Two Xeon 5500, 2.93 GHz",
        "Two sockets with memory controllers of their own: the kernels of STREAM by threads, the cache levels, and "
        "what the memory of the other socket costs.",
        "chart of the bandwidth of six kernels by threads",
    ),
)


# ------------------------------------------------------------------ a fleet


def write_fleet(out: Path) -> None:
    """Ingest and judge the files of synthetic nodes, and write the page of the fleet."""
    with tempfile.TemporaryDirectory(prefix="meshmark-gallery-") as name:
        fleet = Fleet(Path(name))
        synthetic_fleet.write(fleet)
        contents = overview(fleet, load_site(fleet.root / "fleet.toml"))
        write_text(out / "report.html", fleet_page(contents))
    chart = fleet_map((), contents)
    charts, undrawn = charts_or_reason({"map": chart} if chart else {}, out / "charts")
    choose_picture(charts, out, "map", undrawn)


@drawing
def fleet_map(_: Sequence[Any], contents: Overview) -> alt.TopLevelMixin | None:
    """Draw the nodes in their racks, coloured by state."""
    wrong = {case.node for case in contents.open if case.wrong}
    slow = {case.node for case in contents.open} - wrong
    rows = []
    for rack, nodes in contents.racks.items():
        for node, (x, y) in zip(nodes, places(len(nodes), True), strict=True):
            states = {node in wrong: "computes wrongly", node in slow: "slow", node in contents.left: "no result"}
            rows.append({"rack": rack, "x": x, "y": y, "state": states.get(True, "as its class")})
    colours = {"as its class": "#b9d3e6", "slow": "#d55e00", "computes wrongly": "#8b0a4f", "no result": "#dddddd"}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    colour = alt.Color("state:N", title=None, scale=scale, legend=alt.Legend(orient="bottom"))
    cells = chart_of(rows).properties(width=34, height=290).mark_rect(stroke="white", strokeWidth=3)
    racks = cells.encode(x=alt.X("x:O", axis=None), y=alt.Y("y:O", axis=None), color=colour)
    chart: alt.TopLevelMixin = racks.facet(column=alt.Column("rack:N", title=None), spacing=10)
    return chart


FLEET: Final = Part(
    "fleet",
    "A fleet of a hundred nodes",
    "synthetic data",
    "Twenty days of checks: nodes that became slow, a node that computes wrongly, a node without results, and the day "
    "on which a new kernel made a whole class slower.",
    "No such machines exist. A script wrote the files that a hundred nodes would have left, with planted faults; "
    "meshmark fleet ingested and judged them and wrote this page.",
    "map of a hundred nodes in ten racks, coloured by state",
    write_fleet,
    warning=True,
)
PARTS: Final = (HOST, *MODELS, FLEET)


# ------------------------------------------------------------------ the gallery


def choose_picture(charts: Sequence[Path], out: Path, name: str, reason: str) -> None:
    """Copy a chart to `picture.png`.

    Raises:
        MeshmarkError: The charts could not be drawn, for this reason, or the run has no such chart.
    """
    path = next((p for p in charts if p.name == f"{name}.png"), None)
    if path is None:
        raise MeshmarkError(reason or f"found no chart {name}.png, which is the picture")
    shutil.copyfile(path, out / "picture.png")


def add_notice(page: str, part: Part) -> str:
    """Return a report with a link to the gallery, and with the origin of its data, above its title.

    Raises:
        MeshmarkError: The page has no header.
    """
    before, header, after = page.partition("<header>")
    if not header:
        raise MeshmarkError("found no header in the report, where the origin of the data is stated")
    notice = render("notice.html", TEMPLATES, kind=part.kind, text=part.notice, warning=part.warning)
    return f"{before}{header}\n{notice}{after}"


def build_part(part: Part, out: Path) -> None:
    """Build a part in a folder of its own, and then replace the earlier one.

    Raises:
        MeshmarkError: The part cannot be built; the earlier one stays.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{part.name}-", dir=out) as name:
        folder = Path(name) / part.name
        folder.mkdir()
        part.build(folder)
        report = folder / "report.html"
        write_text(report, add_notice(read_text(report), part))
        shutil.rmtree(out / part.name, ignore_errors=True)
        os.replace(folder, out / part.name)


def write_index(parts: Sequence[Part], out: Path) -> Path:
    """Write the first page with the parts that exist, and return its path."""
    cards = [part for part in parts if (out / part.name / "report.html").is_file()]
    index = out / "index.html"
    write_text(index, str(render("gallery.html", TEMPLATES, title="Gallery of reports", cards=cards, version=VERSION)))
    return index


def build(parts: Sequence[Part], chosen: Sequence[Part], out: Path) -> int:
    """Build the chosen parts and the first page of all; return how many parts failed."""
    failures = 0
    for part in chosen:
        print(f"gallery: {part.name}", file=sys.stderr)
        try:
            build_part(part, out)
        except (MeshmarkError, OSError) as error:
            failures += 1
            hint = f" ({error.hint})" if isinstance(error, MeshmarkError) and error.hint else ""
            print(f"gallery: error: {part.name}: {error}{hint}", file=sys.stderr)
    print(write_index(parts, out))
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to build: {', '.join(names)} [all]")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gallery", help="folder [build/gallery]")
    options: Any = parser.parse_args()
    for name in options.parts:
        if name not in names:
            parser.error(f"PART: found {name!r}; allowed: {', '.join(names)}")
    chosen = [part for part in PARTS if part.name in (options.parts or names)]
    try:
        return 1 if build(PARTS, chosen, options.out) else 0
    except KeyboardInterrupt:
        print("gallery: interrupted; make gallery completes it", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
