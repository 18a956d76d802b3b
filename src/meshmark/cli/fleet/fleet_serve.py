"""`meshmark fleet serve`: shows all nodes live in a browser."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from meshmark.cli.console import say
from meshmark.cli.options import time_option
from meshmark.cli.watch.options import HostOption, NoTokenOption, PortOption, TokenFileOption, TokenOption, served_at
from meshmark.errors import UsageError, extra, quoted

if TYPE_CHECKING:
    from meshmark.web.export.pull import NodeAddress

NODE_PORT: Final = 8642  # default port of `meshmark serve`
LINE_S: Final = 10.0  # minimum time between two lines about the fleet


def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the fleet", file_okay=False)],
    interval: Annotated[
        float,
        time_option(
            "--interval", "time between two reports of a node, which counts as silent after three", 1, 3600, "15s"
        ),
    ] = 15.0,
    pull: Annotated[
        list[str] | None,
        typer.Option(
            "--pull",
            metavar="SET:PORT",
            help="pull from the `meshmark serve` of these nodes, such as n[1-16]:8642; may be repeated",
            show_default=False,
        ),
    ] = None,
    node_port: Annotated[
        int,
        typer.Option(
            "--node-port",
            min=0,
            max=65535,
            help="port of `meshmark serve` on nodes that send; nodes of the fleet are contacted by name [no live maps]",
            show_default=False,
        ),
    ] = 0,
    node_token_file: Annotated[
        Path | None,
        typer.Option(
            "--node-token-file",
            help="file with the access token of nodes [this server's]; with --no-token, nodes send with it",
            show_default=False,
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8640,
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    no_token: NoTokenOption = False,
) -> None:
    """Serve a live page with all nodes, which send their measurements or are polled for them.

    On the nodes: meshmark watch --otlp http://HOST:8640 --summary, with the token in OTEL_EXPORTER_OTLP_HEADERS.

    example: meshmark fleet serve /shared/fleet --host 0.0.0.0 --token-file token
    """
    from meshmark.fleet.known import cases_of, nodes_of, racks_of
    from meshmark.fleet.nodesets import in_order
    from meshmark.fleet.site import fleet_and_site
    from meshmark.web.export.pull import NodeAddress, Puller

    with extra("fleet"):
        from meshmark.web.fleet.fleet import FleetParts, make_fleet_site
    from meshmark.web.fleet.live_fleet import LiveFleet
    from meshmark.web.fleet.remote_maps import RemoteMaps
    from meshmark.web.guard import chosen_token
    from meshmark.web.listener import run

    access_token = chosen_token(token, token_file, no_token)
    fleet, site = fleet_and_site(folder, may_be_new=True)
    if not folder.is_dir():
        raise UsageError(f"FOLDER: found no folder {quoted(folder)}", f"mkdir {folder}")
    cases_of(fleet, site)  # rejects a damaged file now
    nodes = pull_targets(pull or ())
    known_nodes = nodes_of(fleet, site, lambda reason: say(f"warning: {reason}"))
    queried = frozenset(known_nodes if node_port else ())
    live = LiveFleet(in_order([*known_nodes, *nodes]), interval)
    node_token = _node_token(access_token, node_token_file, bool(token or token_file))

    def find(name: str) -> NodeAddress | None:
        """Return where to query a node. This is never the address that it sends from, which would get the token."""
        return nodes.get(name) or (NodeAddress(name, node_port) if name in queried else None)

    async def ask() -> None:
        await Puller(live, nodes, node_token).run()

    parts = FleetParts(
        site.cluster,
        live,
        racks_of(site),
        lambda: cases_of(fleet, site),
        tasks=[ask] if nodes else [],
        maps=RemoteMaps(find, node_token),
        counted=_lines(),
    )
    push_token = "" if access_token else node_token
    run(lambda: make_fleet_site(parts, access_token, push_token), host, port, access_token, served_at)


def pull_targets(sets: Sequence[str]) -> dict[str, NodeAddress]:
    """Return the nodes of sets such as `n[1-16]:8642`, by name.

    Raises:
        UsageError: A text is not a set of nodes, or its port is invalid.
    """
    from meshmark.fleet.nodesets import expand
    from meshmark.web.export.pull import NodeAddress

    targets: dict[str, NodeAddress] = {}
    for text in sets:
        match = re.fullmatch(r"([^:]+)(?::([0-9]{1,5}))?", text)
        port = int(match[2] or NODE_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            allowed = f"a set with a port, such as n[1-16]:{NODE_PORT}"
            raise UsageError(f"--pull: found '{quoted(text)}'; allowed: {allowed}")
        targets |= {name: NodeAddress(name, port) for name in expand(match[1], "--pull")}
    return targets


def _node_token(own: str, file: Path | None, is_given: bool) -> str:
    """Return the token for queries to nodes; never a token that was generated for this server."""
    from meshmark.web.guard import VARIABLE, token_in

    if file is not None:
        return token_in(file, "--node-token-file")
    return own if is_given or os.environ.get(VARIABLE) else ""


def _lines() -> Callable[[Mapping[str, int]], None]:
    """Return a function that prints a line if the numbers of nodes have changed, at most once in `LINE_S`."""
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
        with contextlib.suppress(OSError, ValueError):  # standard error may be closed
            say(
                f"meshmark: {reports} of {sum(counts.values())} nodes report ({cases} with open cases), "
                f"{counts['silent']} silent, {counts['never']} never seen"
            )

    return show
