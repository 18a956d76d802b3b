"""Tests of claims in the terminal and as pages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.validation.claims.catalogue import chosen, claims
from meshmark.validation.claims.judging import ClaimVerdict, Effect, exact, of_effects, to_record, untested
from meshmark.validation.claims.run import history
from meshmark.validation.claims_page import claim_page, index_page, write_pages
from meshmark.validation.claims_text import print_list, print_verdicts, summary
from support.made_run import record

(H05, P06, R13) = (chosen([i])[0] for i in ("H05", "P06", "R13"))
RUNS = ("claims-20261001T100000-0", "claims-20261125T200000-0")
EFFECT = Effect("copy <streaming> over ordinary", 1.2, (1.15, 1.25))


def verdicts() -> list[ClaimVerdict]:
    """Return verdicts on H05 in October and November, on P06, and on claims that could not be tested."""
    october, november = ("2026-10-01T10:00:00Z", "2026-11-25T20:00:00Z")
    return [
        replace(of_effects(H05, "n042", "measured", [exact(EFFECT.what, 1.5)], october), run=RUNS[0], step="H05-host"),
        replace(of_effects(H05, "n042", "measured", [EFFECT], november), run=RUNS[1], step="H05-host"),
        replace(of_effects(H05, "vm", "measured on a guest", [EFFECT], november), run=RUNS[1], step="H05-host"),
        replace(
            of_effects(P06, "publications", "printed", [exact("share", 0.98)], november), run=RUNS[1], step="P06-c"
        ),
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    new_store = Store(tmp_path / "store")
    for v in verdicts():
        row = to_record(v, "0.1.0")
        assert isinstance(row, Record)
        new_store.add(v.run, f"{v.step}-{v.machine}", [row])
        new_store.add(
            v.run, f"{v.step}-{v.machine}.a.r1", [record("bandwidth", "bandwidth_net", 2e9, store="streaming")]
        )
    return new_store


def test_the_terminal_shows_effect_interval_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    claim_verdicts = [*verdicts()[1:], untested(R13, "n042", "measured", "it needs 8 CPUs, this machine has 2", "")]
    print_verdicts({c.id: c for c in claims()}, claim_verdicts)
    out = " ".join(capsys.readouterr().out.split())
    assert "1.2 1.15 – 1.25 1.5 does not hold" in out and "exact at least 0.9 holds, by" in out
    assert "on a guest:" in out and "cannot be" in out and "it needs 8 CPUs" in out
    assert "tests: 4, of claims: 3; holds: 1, does not hold: 1, indicative only: 1, cannot be tested here: 1" in out
    assert "claims with evidence for or against them: 1; tests that only repeat printed numbers, and are no" in out
    assert summary([]) == ["no verdicts"]


def test_the_list_shows_the_newest_verdict_of_each_machine(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    print_list([H05, R13], history(store))
    out = " ".join(capsys.readouterr().out.split())
    assert "n042: does not hold" in out and "n042: holds" not in out and "vm: on a guest" in out


def test_the_index_counts_tests_and_links_pages(store: Store) -> None:
    page = index_page(claims(), history(store))
    assert page.startswith("<!doctype html>") and page.count('.html">') == len(claims())
    words = re.sub(r"<[^>]*>|\s+", " ", page)
    assert "1 with evidence for or against them" in " ".join(words.split())
    assert "n042: does not hold" in page and "not tested yet" in page


def test_a_page_shows_evidence_history_and_escapes_texts(store: Store) -> None:
    runs = {run: [(s, r) for _, s, r in store.rows(run=run)] for run in RUNS}
    claim_verdicts = [replace(v, step=f"{v.step}-{v.machine}") for v in verdicts() if v.claim == "H05"]
    page = claim_page(H05, claim_verdicts, runs)
    assert "copy &lt;streaming&gt; over ordinary" in page and "<streaming>" not in page
    assert page.index("2026-11-25 20:00:00") < page.index("2026-10-01 10:00:00"), "the newest comes first"
    assert RUNS[1] in page and "2.00" in page and "GB/s" in page
    assert str(H05.source).split(" (")[0].replace("'", "&#39;") in page
    assert 'class="dot"' in page and "on a guest: indicative only (does not hold)" in page


def test_pages_are_written_for_the_chosen_claims_only(store: Store, tmp_path: Path) -> None:
    assert write_pages(tmp_path / "out", [H05, P06], history(store), store) == 3
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"index.html", "H05.html", "P06.html"}
    untested_page = claim_page(R13, [], {})
    assert "Not tested yet: <code>meshmark claims R13</code>" in untested_page
