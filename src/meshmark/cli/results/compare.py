"""`meshmark compare`: shows the results of machines, runs and files side by side."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.completion import compared
from meshmark.cli.console import say, say_broken, say_undrawn
from meshmark.cli.options import (
    InstrumentOption,
    JsonOption,
    MarkdownOption,
    MetricOption,
    StoreToReadOption,
    check_one_form,
    in_folder,
    share,
)
from meshmark.cli.results.gate import AllowUnjudgedOption, MinJudgedOption, check_results, check_used
from meshmark.errors import UsageError, quoted
from meshmark.values.numbers import decimal

if TYPE_CHECKING:
    from meshmark.compare.join import ResultComparison


def register(app: typer.Typer) -> None:
    """Add the command `compare`."""
    app.command("compare")(compare)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="host, latest, a machine of the store (MACHINE, MACHINE@DATE, MACHINE@all), a run, a run folder, a "
            "file of results or card.json, a model, or a publication (paper:NAME)",
            autocompletion=compared,
            show_default=False,
        ),
    ],
    instrument: InstrumentOption = "",
    metric: MetricOption = "",
    per: Annotated[
        str,
        typer.Option(
            "--per",
            help="thread: rates per thread; clock: times in clock cycles, rates per cycle; peak: rates of memory as a "
            "share of the theoretical peak",
        ),
    ] = "",
    margin: Annotated[str, typer.Option("--margin", help="smallest difference that matters", metavar="PERCENT")] = "2%",
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            help="exit with status 1 if a result of B is worse than the result of A by more than this",
            metavar="PERCENT",
            show_default=False,
        ),
    ] = "",
    min_judged: MinJudgedOption = 1,
    allow_unjudged: AllowUnjudgedOption = False,
    every: Annotated[bool, typer.Option("--all", help="list equal results, too")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="write a page with charts", show_default=False, callback=in_folder),
    ] = None,
    ideal: Annotated[
        str,
        typer.Option(
            "--ideal",
            help="with --html: draw a line at this ratio of rates, and at its inverse for times; 1.25 for a clock that "
            "is 25 % higher",
            metavar="RATIO",
            show_default=False,
        ),
    ] = "",
    as_markdown: MarkdownOption = False,
    store: StoreToReadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare machines, runs and files of results. The first side, A, is what the others are compared with.

    example: meshmark compare host@2026-10 host --fail-on 5%
    example: meshmark compare paper:gs1280 gs1280-16 gs320-16 es45 --html machines.html
    """
    from meshmark.compare.join import compare as joined
    from meshmark.compare.join import to_json
    from meshmark.compare.normalise import PER
    from meshmark.compare.sides import Sides
    from meshmark.views.content.compared_rows import check_number
    from meshmark.views.terminal.comparison import print_comparison

    check_number(len(sides))
    check_one_form(as_markdown, as_json)
    divisor = next((p for p in ("", *PER) if p == per), None)
    if divisor is None:
        raise UsageError(f"--per: found '{per}'; allowed: {', '.join(PER)}")
    ratio_of_rates = ideal_ratio(ideal, html)
    check_used(fail_on, min_judged, allow_unjudged)
    limit = share("--fail-on", fail_on) if fail_on else None
    threshold = limit if limit is not None else share("--margin", margin)
    resolver = Sides.here(store)
    a, *candidates = resolver.find_all(sides, instrument)
    say_broken(resolver.store)
    comparisons = [
        joined(a, b, margin=threshold, per=divisor, instrument=instrument, metric=metric) for b in candidates
    ]
    if as_json:
        for line in (line for c in comparisons for line in to_json(c)):
            print(json.dumps(line))
    elif as_markdown:
        from meshmark.views.pages.comparison_markdown import markdown

        print(markdown(comparisons), end="")
    else:
        print_comparison(comparisons, every)
    if html is not None:
        from meshmark.store.files import write_text
        from meshmark.views.charts.drawing import last_undrawn
        from meshmark.views.pages.comparison import comparison_page

        page = comparison_page(comparisons, ratio_of_rates)
        write_text(html, page)
        say(f"meshmark: wrote {html}")
        say_undrawn(last_undrawn())
    if limit is not None:
        _gate(comparisons, fail_on, min_judged, allow_unjudged)


def ideal_ratio(text: str, html: Path | None) -> float | None:
    """Return the number of --ideal; None without this option.

    Raises:
        UsageError: The text is not a number above 0, or no page is requested that would show the line.
    """
    if not text:
        return None
    number = decimal(text)
    if number is None or number <= 0 or not 1 / number < math.inf:
        raise UsageError(f"--ideal: found '{quoted(text)}', a number above 0 is required, such as 1.25")
    if html is None:
        raise UsageError("--ideal: found without --html; allowed with --html, whose chart of ratios has the line")
    return number


def _gate(comparisons: list[ResultComparison], limit: str, min_judged: int, allow_unjudged: bool) -> None:
    """Raise if a result is worse by more than the limit, or if too few could be judged."""
    from meshmark.views.content.compared_text import reasons

    worse = [
        f"{c.b.name}: {p.a.instrument} {p.a.metric} is {p.ratio.value:.3g} of {c.a.name}'s"
        for c in comparisons
        for p in c.worse()
        if p.ratio is not None
    ]
    judged_count = sum(p.word not in {"not comparable", "inconclusive"} for c in comparisons for p in c.pairs)
    counts = (judged_count, sum(len(c.pairs) for c in comparisons), "results")
    all_reasons = "; ".join(text for c in comparisons for text in reasons(c))
    check_results("compare", counts, worse, limit, min_judged, allow_unjudged, all_reasons)
