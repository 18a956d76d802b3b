"""Writes proteins with related ones planted among them for BLAST, and checks that a search finds these.

blast.py make    writes queries.fasta, proteins.fasta and planted.txt
blast.py check HITS PLANTED
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

QUERIES, PROTEINS, LENGTH = 16, 8000, 350
RELATED = 5  # proteins for each query
KEPT = (0.55, 0.85)  # share of the amino acids that related proteins have in common
FRAGMENT = (120, 250)  # length of the related part
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


def related(protein: str, draw: random.Random) -> str:
    """A part of a protein, with other amino acids in random places."""
    length = draw.randint(*FRAGMENT)
    start, kept = draw.randrange(len(protein) - length), draw.uniform(*KEPT)
    part = protein[start : start + length]
    return "".join(a if draw.random() < kept else draw.choice(AMINO_ACIDS) for a in part)


def make() -> None:
    draw = random.Random(20260702)
    proteins = ["".join(draw.choices(AMINO_ACIDS, k=LENGTH)) for _ in range(PROTEINS)]
    queries = ["".join(draw.choices(AMINO_ACIDS, k=LENGTH)) for _ in range(QUERIES)]
    places = iter(draw.sample(range(PROTEINS), QUERIES * RELATED))
    planted = []
    for number, query in enumerate(queries):
        for place in (next(places) for _ in range(RELATED)):
            part = related(query, draw)
            at = draw.randrange(LENGTH - len(part))
            proteins[place] = proteins[place][:at] + part + proteins[place][at + len(part) :]
            planted.append(f"q{number} p{place}\n")
    for name, letter, texts in (("queries", "q", queries), ("proteins", "p", proteins)):
        Path(f"{name}.fasta").write_text("".join(f">{letter}{n}\n{t}\n" for n, t in enumerate(texts)), encoding="ascii")
    Path("planted.txt").write_text("".join(planted), encoding="ascii")


def check(hits: Path, planted: Path) -> str:
    """Why the pairs of query and protein that were found are not those that were planted; "" if they are."""
    wanted = {tuple(line.split()) for line in planted.read_text(encoding="ascii").splitlines()}
    found = {tuple(line.split()[:2]) for line in hits.read_text(encoding="ascii").splitlines()}
    missing, wrong = len(wanted - found), len(found - wanted)
    return (
        f"{missing} of {len(wanted)} planted proteins were not found, {wrong} others were" if missing or wrong else ""
    )


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make()
    elif why := check(Path(sys.argv[2]), Path(sys.argv[3])):
        sys.exit(why)
