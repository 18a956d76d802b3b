"""Writes the model of a cantilever for CalculiX: calculix.py FILE.

The cantilever consists of 20-node bricks with reduced integration. It extends along x, is clamped at x = 0, and has a
force at the other end.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

LENGTH, SIDE = 100.0, 10.0  # in mm
BRICKS = (32, 6, 6)  # number along x, y and z; even along y and z, so that the middle of the end has a node
FORCE = 1000.0  # in N, along -z
STEEL = (210_000.0, 0.0)  # modulus in MPa; no transverse contraction, which the clamped end would hinder

# The order of the nodes of C3D20R: corners of the bottom and of the top, then middles of the edges of the bottom, of
# the top, and between them.
CORNERS = ((0, 0), (2, 0), (2, 2), (0, 2))
MIDDLES = ((1, 0), (2, 1), (1, 2), (0, 1))
NODES = [
    (x, y, z) for these, z in ((CORNERS, 0), (CORNERS, 2), (MIDDLES, 0), (MIDDLES, 2), (CORNERS, 1)) for x, y in these
]


def deck() -> str:
    """Return the input of CalculiX. Nodes are numbered along x last, which keeps the bandwidth of the matrix small."""
    bricks = [[(x + 2 * i, y + 2 * j, z + 2 * k) for x, y, z in NODES] for i, j, k in product(*map(range, BRICKS))]
    number = {place: n for n, place in enumerate(sorted({place for brick in bricks for place in brick}), 1)}
    lines = ["*NODE, NSET=ALL"]
    for place, n in number.items():
        coordinates = (
            size * half / (2 * count) for size, half, count in zip((LENGTH, SIDE, SIDE), place, BRICKS, strict=True)
        )
        lines.append(f"{n}, " + ", ".join(f"{x:.9f}" for x in coordinates))
    lines.append("*ELEMENT, TYPE=C3D20R, ELSET=BEAM")
    for n, brick in enumerate(bricks, 1):
        nodes = [str(number[place]) for place in brick]
        lines += [f"{n}, {', '.join(nodes[:10])},", ", ".join(nodes[10:])]
    clamped_nodes = [n for place, n in number.items() if place[0] == 0]
    end_nodes = [n for place, n in number.items() if place[0] == 2 * BRICKS[0]]
    middle_node = number[2 * BRICKS[0], BRICKS[1], BRICKS[2]]
    for name, members in (("CLAMPED", clamped_nodes), ("END", end_nodes), ("MIDDLE", [middle_node])):
        lines += [f"*NSET, NSET={name}", *(f"{n}," for n in members)]
    lines += ["*MATERIAL, NAME=STEEL", "*ELASTIC", "{}, {}".format(*STEEL)]
    lines += ["*SOLID SECTION, ELSET=BEAM, MATERIAL=STEEL", "*BOUNDARY", "CLAMPED, 1, 3", "*STEP", "*STATIC"]
    lines += ["*CLOAD", f"END, 3, {-FORCE / len(end_nodes):.12g}", "*NODE PRINT, NSET=MIDDLE", "U", "*END STEP", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(deck(), encoding="ascii")
