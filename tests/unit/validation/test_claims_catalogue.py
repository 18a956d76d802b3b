"""Tests of the catalogue of claims: required keys of a file, and the files of the package."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from meshmark.describe import description
from meshmark.errors import MeshmarkError, UsageError
from meshmark.model.instruments import POINTS
from meshmark.model.machine import machine_names
from meshmark.model.patterns import PATTERNS
from meshmark.validation.claims import computed, measured, modelled
from meshmark.validation.claims.catalogue import Claim, chosen, claims, read, themes, trials_of
from meshmark.validation.claims.registry import METHODS
from support.paths import ROOT
from support.scripts import docs_script

MODULES = (computed, measured, modelled)  # importing these modules registers the methods
SOURCES = '[source.paper]\ntitle = "A paper"\nyear = 2003\n'
CLAIM = """claims_format = 1
theme = "memory hierarchy"
letter = "H"

[[claim]]
id = "H01"
statement = "Random loads take longer than loads in sequence."
published = "130 and 80 ns"
source = { of = "paper", place = "figure 4" }
relation = "higher"
timing = true
host = { method = "ratio", cpus = 2, instrument = "latency" }
"""


def written(folder: Path, text: str) -> Path:
    (folder / "sources.toml").write_text(SOURCES)
    (folder / "hierarchy.toml").write_text(text)
    return folder


def test_there_are_eighty_claims_of_six_themes_with_their_sources() -> None:
    all_claims = claims()
    assert len(all_claims) >= 80 and len(themes()) == 6
    assert all(c.source.title and c.source.place and 1960 < c.source.year < 2027 for c in all_claims)
    assert min(Counter(c.theme for c in all_claims).values()) >= 10
    assert len({c.statement for c in all_claims}) == len(all_claims), "no statement occurs twice"


@pytest.mark.parametrize("claim", claims(), ids=lambda c: c.id)
def test_the_tests_of_a_claim_name_what_exists(claim: Claim) -> None:
    for trial in claim.tests:
        assert (trial.where, trial.method) in METHODS, trial
        assert set(trial.on) <= {*machine_names()}
        tables = [trial.parameters, *(trial.parameters.get(k) for k in "ab"), *trial.parameters.get("more", ())]
        instruments = [t["Instrument"] for t in tables if isinstance(t, dict) and "Instrument" in t]
        for instrument in [
            *instruments,
            *([trial.parameters["instrument"]] if "instrument" in trial.parameters else []),
        ]:
            if trial.where == "model":
                assert instrument in {*POINTS, *PATTERNS}
        if trial.where == "host" and not trial.needs.get("ranks"):
            for instrument in instruments:
                assert description(instrument).name == instrument


def test_claims_about_timing_say_so() -> None:
    # Statistics, counts and paths of a topology are not about timing; a rate or a latency on a host always is.
    for claim in claims():
        for trial in claim.tests:
            if trial.where == "host" and trial.method == "ratio":
                assert claim.timing, f"{claim.id}: a ratio of measured times or rates"


def test_a_claim_has_what_its_file_says(tmp_path: Path) -> None:
    (claim,) = read(written(tmp_path, CLAIM))
    assert claim.id == "H01" and claim.timing and claim.expected == "higher than 1" and claim.margin == 0.02
    assert str(claim.source) == "A paper (2003), figure 4"
    (trial,) = claim.tests
    assert trial.needs == {"cpus": 2} and trial.parameters == {"instrument": "latency"} and trial.on == ()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("claims_format = 1", "claims_format = 2", "claims_format: found 2"),
        ('id = "H01"', 'id = "L01"', "claim L01: must begin with H"),
        ('id = "H01"', 'id = "H1"', "found 'H1'; allowed: a letter and two digits"),
        ('relation = "higher"', 'relation = "faster"', "found 'faster'; allowed: higher, lower"),
        ('relation = "higher"', 'relation = "within"', "range: two numbers are required"),
        ('relation = "higher"', 'relation = "higher"\nvalue = 0.0', "found 0, a number above 0 is required"),
        ('of = "paper"', 'of = "papre"', "source: found 'papre'"),
        ("timing = true\n", "", "timing: found nothing"),
        ("timing = true", "timing = 1", "timing: found 1; allowed: true and false"),
        ('published = "130 and 80 ns"', 'publisht = "1"', "publisht: unknown key; did you mean published?"),
        ("host = {", "model = {", "method, and `on` for models, are required"),
        ('host = { method = "ratio", cpus = 2, instrument = "latency" }', "", "found no test"),
        ("[[claim]]", "[[claims]]", "claims: unknown key"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in CLAIM
    with pytest.raises(MeshmarkError, match=re.escape(says)) as error:
        read(written(tmp_path, CLAIM.replace(old, new)))
    assert "hierarchy.toml" in str(error.value) and "\n" not in str(error.value)


def test_an_id_that_occurs_twice_and_a_file_that_is_no_toml_are_refused(tmp_path: Path) -> None:
    text = CLAIM + CLAIM[CLAIM.index("[[claim]]") :]
    with pytest.raises(MeshmarkError, match="claim H01: occurs twice"):
        read(written(tmp_path, text))
    with pytest.raises(MeshmarkError, match=r"hierarchy\.toml: "):
        read(written(tmp_path, "claims_format = ="))


def test_claims_are_chosen_by_id_theme_and_place() -> None:
    assert [c.id for c in chosen(["h05", "H09"])] == ["H05", "H09"]
    assert {c.theme for c in chosen((), "measuring")} == {"measuring"}
    with pytest.raises(UsageError, match="found 'H99'; allowed: H01 to"):
        chosen(["H99"])
    with pytest.raises(UsageError, match="--theme: found 'memory'; allowed: memory hierarchy"):
        chosen((), "memory")
    all_claims = claims()
    assert {m for _, _, m in trials_of(all_claims, "xeon5500")} == {"xeon5500"}
    guest = trials_of(all_claims, "guest")
    assert guest and not any(c.timing for c, _, _ in guest), "a guest supports no claim about timing"
    assert {t.where for _, t, _ in trials_of(all_claims, "host")} == {"host"}


def test_the_page_of_claims_is_as_it_is_generated() -> None:
    page = (ROOT / "docs" / "reference" / "claims.md").read_text(encoding="utf-8")
    assert page == "\n".join(docs_script("generate").claims()).rstrip() + "\n", "run docs/generate.py"


def test_the_guide_and_the_changelog_state_how_many_claims_there_are() -> None:
    for name in ("docs/how-to/claims.md", "CHANGELOG.md"):
        assert str(len(claims())) in (ROOT / name).read_text(encoding="utf-8"), name
