"""Writes proteins for BLAST, with related proteins planted among them, and checks that a search finds these.

blast.py make    writes queries.fasta, proteins.fasta and planted.txt
blast.py check HITS PLANTED
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

QUERIES, PROTEINS, LENGTH = 16, 8000, 350
RELATED = 5  # proteins for each query
KEPT = (0.55, 0.85)  # range of the share of amino acids that related proteins have in common
FRAGMENT = (120, 250)  # range of the length of the related part
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


def related(protein: str, draw: random.Random) -> str:
    """Return a part of a protein, with other amino acids in random places."""
    length = draw.randint(*FRAGMENT)
    start, identity = draw.randrange(len(protein) - length), draw.uniform(*KEPT)
    part = protein[start : start + length]
    return "".join(a if draw.random() < identity else draw.choice(AMINO_ACIDS) for a in part)


def make() -> None:
    """Write queries and proteins in FASTA format, and the list of the planted pairs, to the current folder."""
    rng = random.Random(20260702)
    proteins = ["".join(rng.choices(AMINO_ACIDS, k=LENGTH)) for _ in range(PROTEINS)]
    queries = ["".join(rng.choices(AMINO_ACIDS, k=LENGTH)) for _ in range(QUERIES)]
    places = iter(rng.sample(range(PROTEINS), QUERIES * RELATED))
    lines = []
    for number, query in enumerate(queries):
        for place in (next(places) for _ in range(RELATED)):
            part = related(query, rng)
            offset = rng.randrange(LENGTH - len(part))
            proteins[place] = proteins[place][:offset] + part + proteins[place][offset + len(part) :]
            lines.append(f"q{number} p{place}\n")
    for name, letter, texts in (("queries", "q", queries), ("proteins", "p", proteins)):
        Path(f"{name}.fasta").write_text("".join(f">{letter}{n}\n{t}\n" for n, t in enumerate(texts)), encoding="ascii")
    Path("planted.txt").write_text("".join(lines), encoding="ascii")


def check(hits: Path, planted: Path) -> str:
    """Return how the pairs of query and protein that were found differ from the planted pairs; "" if they do not."""
    planted_pairs = {tuple(line.split()) for line in planted.read_text(encoding="ascii").splitlines()}
    found_pairs = {tuple(line.split()[:2]) for line in hits.read_text(encoding="ascii").splitlines()}
    missing_count, wrong_count = len(planted_pairs - found_pairs), len(found_pairs - planted_pairs)
    return (
        f"{missing_count} of {len(planted_pairs)} planted proteins were not found, {wrong_count} others were"
        if missing_count or wrong_count
        else ""
    )


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make()
    elif why := check(Path(sys.argv[2]), Path(sys.argv[3])):
        sys.exit(why)
