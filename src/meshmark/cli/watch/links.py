"""The forms of `meshmark replay` that show the loads of links: `--links` and `--expected`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from meshmark.watch.links.expected import ExpectedLoads
    from meshmark.watch.recorder.window import TimeWindow
    from meshmark.watch.recording import RecordingFile

LinksOption = Annotated[
    bool, typer.Option("--links", help="show the use of the links by direction and by class as a table")
]
ExpectedOption = Annotated[
    str,
    typer.Option(
        "--expected",
        metavar="TRAFFIC",
        help="compare the loads of the links with those that the topology and this traffic predict: workload (as the "
        "recording states), uniform, hot_spot, ring, FILE.csv",
    ),
]


def print_use(recording: RecordingFile, window: TimeWindow, as_json: bool) -> None:
    """Print the use of the links of a recording by direction and by class."""
    from meshmark.views.content.links import use_section
    from meshmark.views.terminal.screen import print_sections, table_console
    from meshmark.watch.links.network import network_of
    from meshmark.watch.links.use import link_use

    use = link_use(recording.header, network_of(recording.header), window.frames(recording))
    if as_json:
        print(json.dumps(use.to_json()))
    else:
        print_sections(table_console(), [use_section(use)])


def expected_loads(recording: RecordingFile, window: TimeWindow, traffic: str) -> ExpectedLoads:
    """Return the loads of the links of a recording beside the expected ones."""
    from meshmark.watch.links.expected import compare_with_expected
    from meshmark.watch.links.traffic import traffic_of

    header = recording.header
    return compare_with_expected(recording.path.name, header, window.frames(recording), traffic_of(traffic, header))


def print_expected(loads: ExpectedLoads, as_json: bool) -> None:
    """Print the loads of the links beside the expected ones: the result as a sentence, then tables."""
    from meshmark.views.content.links import expected_section, use_section
    from meshmark.views.terminal.screen import print_sections, table_console

    if as_json:
        print(json.dumps(loads.to_json()))
        return
    for sentence in filter(None, (loads.sentence, loads.cause)):
        print(sentence)
    print()
    print_sections(table_console(), [expected_section(loads), use_section(loads.use)])
