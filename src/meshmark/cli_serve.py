"""`meshmark serve`: this machine, recordings, simulated machines and reports in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli_model import StoreOption
from meshmark.cli_watch import HostOption, PortOption, TokenOption, served_at, simulated
from meshmark.errors import MeshmarkError, UsageError
from meshmark.terminal import data_home

if TYPE_CHECKING:
    from meshmark.store.record import Record
    from meshmark.store.run import Absence, RunInfo
    from meshmark.web.site import RunRow

FRAMES: Final = 200
WINDOW_NS: Final = 500.0
NEED_MORE: Final = ("trace", "programs")  # workloads that a name alone does not describe


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    store: StoreOption = None,
    recordings: Annotated[Path, typer.Option("--recordings", help="folder of recordings")] = Path(),
    rate: Annotated[float, typer.Option("--rate", min=0.01, max=100, help="frames a second (Hz)")] = 2.0,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8642,
    token: TokenOption = "",
) -> None:
    """Serve this machine, recordings, simulated machines and reports to a browser.

    example: meshmark serve --recordings nights
    """
    from meshmark.machine.facts import host_facts
    from meshmark.model.machine import find_machine, machine_names
    from meshmark.model.patterns import PATTERNS
    from meshmark.watch.live import this_host
    from meshmark.web.server import run
    from meshmark.web.site import ModelRow, Parts, make_site

    if not recordings.is_dir():
        raise UsageError(f"--recordings: found no folder {recordings}")
    runs = Runs(store or data_home() / "store", data_home() / "runs")
    facts: Any = host_facts()
    topology, kernel, memory = facts["topology"], facts["kernel"], facts["memory"]
    about = [str(topology["summary"])] if "summary" in topology else []
    total = memory.get("total_bytes")
    about += [f"{total / 2**30:.3g} GiB"] if isinstance(total, int) else []
    about += [f"Linux {kernel['release']}"] if isinstance(kernel.get("release"), str) else []
    name = facts["machine"].get("name")
    parts = Parts(
        machine=(name if isinstance(name, str) else "This machine", " · ".join(about)),
        start=lambda: this_host(rate, store=store),
        recordings=recordings,
        models=[ModelRow(n, find_machine(n).title) for n in machine_names()],
        workloads=[p for p in PATTERNS if p not in NEED_MORE],
        simulate=lambda machine, workload: simulated(machine, workload, None, FRAMES, WINDOW_NS),
        runs=runs.rows,
        report=runs.report,
    )
    run(lambda: make_site(parts, token), host, port, token, served_at)


class Runs:
    """The runs of a store, and those of surveys that lie in folders of their own, which know more of the host."""

    def __init__(self, store: Path, folders: Path) -> None:
        self.store, self.folders = store, folders

    def _folder(self, name: str) -> Path | None:
        """The folder of a survey: one that is named as it is, and lies there itself."""
        folder = self.folders / name
        here = re.fullmatch(r"[^/\0]+", name) and folder.resolve().parent == self.folders.resolve()
        return folder if here and (folder / "plan.json").is_file() else None

    def rows(self) -> list[RunRow]:
        """Those to list, the newest first.

        Raises:
            MeshmarkError: the store cannot be read.
        """
        import duckdb

        from meshmark.store.store import Store
        from meshmark.web.site import RunRow

        try:
            found = Store(self.store).runs() if self.store.is_dir() else []
        except duckdb.Error as why:
            raise MeshmarkError(f"{self.store}: {str(why).splitlines()[0][:120]}", "meshmark store verify") from why
        stamp = max((p.stat().st_mtime_ns for p in self.store.glob("*.parquet")), default=0) if found else 0
        rows = [
            RunRow(str(r["run"]), str(r["machine"]), str(r["start"] or ""), int(r["records"]), r["instruments"], stamp)
            for r in found
        ]
        return sorted(rows, key=lambda r: (r.started, r.name), reverse=True)

    def report(self, name: str) -> bytes:
        """The page of a run; of one without a folder, from its records alone."""
        import tempfile

        from meshmark.measure.survey import load_run
        from meshmark.report.build import write_report

        folder = self._folder(name)
        records, absences, info = load_run(folder) if folder is not None else self._stored(name)
        with tempfile.TemporaryDirectory(prefix="meshmark-report-") as out:
            return write_report(records, absences, info, Path(out)).html.read_bytes()

    def _stored(self, name: str) -> tuple[list[Record], list[Absence], RunInfo]:
        from importlib.metadata import version

        from meshmark.store.run import RunInfo
        from meshmark.store.store import Store

        store = Store(self.store)
        records, absences = store.query(run=name), store.absences(run=name)
        if not records:
            raise MeshmarkError(f"report: run '{name}' has no records")
        made = [r.provenance for r in records]
        commands = sorted({str(p["command"]) for p in made if "command" in p})
        info = RunInfo(
            run_id=name, machine=records[0].machine, started=min((str(p.get("start", "")) for p in made), default=""),
            elapsed_s=0.0, spec_name="none: records of the store", command="; ".join(commands)[:500],
            version=version("meshmark"),
        )  # fmt: skip
        return records, absences, info
