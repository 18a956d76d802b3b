"""`meshmark fleet serve`: all nodes live, in a browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from meshmark.cli.console import say
from meshmark.cli.options import time_option
from meshmark.cli.watch import HostOption, NoTokenOption, PortOption, TokenFileOption, TokenOption, served_at
from meshmark.errors import UsageError, quoted

LINE_S: Final = 10.0  # between two lines about the fleet


def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the fleet", file_okay=False)],
    interval: Annotated[
        float, time_option("--interval", "time between two reports of a node; silent after three", 1, 3600, "15s")
    ] = 15.0,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8640,
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    no_token: NoTokenOption = False,
) -> None:
    """Serve a page with all nodes, live, to which they send what they measure of themselves.

    On the nodes: meshmark watch --otlp http://HOST:8640 --summary, with the token in OTEL_EXPORTER_OTLP_HEADERS.

    example: meshmark fleet serve /shared/fleet --host 0.0.0.0 --token-file token
    """
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.known import cases_of, nodes_of, racks_of
    from meshmark.fleet.site import load_site
    from meshmark.web.fleet import FleetParts, make_fleet_site
    from meshmark.web.guard import chosen_token
    from meshmark.web.listener import run
    from meshmark.web.live_fleet import LiveFleet

    access_token = chosen_token(token, token_file, no_token)
    if not folder.is_dir():
        raise UsageError(f"FOLDER: found no folder {quoted(folder)}", f"mkdir {folder}")
    fleet = Fleet(folder.absolute())
    site = load_site(fleet.site)
    live = LiveFleet(nodes_of(fleet, site), interval)
    parts = FleetParts(site.cluster, live, racks_of(site), lambda: cases_of(fleet, site), counted=_lines())
    run(lambda: make_fleet_site(parts, access_token), host, port, access_token, served_at)


def _lines() -> Callable[[Mapping[str, int]], None]:
    """Prints a line when the numbers of nodes have changed, at most one in `LINE_S`."""
    last: Mapping[str, int] = {}
    at = -LINE_S

    def show(counts: Mapping[str, int]) -> None:
        nonlocal last, at
        now = time.monotonic()
        if counts == last or now - at < LINE_S:
            return
        last, at = counts, now
        reports = sum(counts[k] for k in ("live", "named", "wrong"))
        cases = counts["named"] + counts["wrong"]
        say(
            f"meshmark: {reports} of {sum(counts.values())} nodes report, {counts['silent']} silent, "
            f"{counts['never']} never seen, {cases} with open cases"
        )

    return show
