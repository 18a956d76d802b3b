"""Writes a scene of spheres for Tachyon, and compares its image with rays that this program traces.

tachyon.py make FILE    tachyon.py check IMAGE
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

SPHERES = 3000
WIDTH, HEIGHT = 640, 480
RAYS = 400  # number of rays for the comparison
TOLERANCE = 3  # maximum difference of each color, from 0 to 255
WRONG = 0.02  # share of rays that may differ: at the rim of a sphere, rounding decides which sphere a ray hits

Vector = tuple[float, float, float]
Sphere = tuple[Vector, float, Vector]  # center, radius, color

EYE: Vector = (0.0, 0.0, -12.0)
LIGHT: Vector = (-30.0, 40.0, -30.0)
BACKGROUND: Vector = (0.1, 0.2, 0.4)
AMBIENT, DIFFUSE, MIRROR, DEPTH = 0.15, 0.6, 0.25, 4


def spheres() -> list[Sphere]:
    """Return a large sphere, which is the floor, and random spheres above it. The result is always the same."""
    uniform = random.Random(20260701).random
    world: list[Sphere] = [((0.0, -1006.0, 0.0), 1000.0, (0.8, 0.8, 0.8))]
    for _ in range(SPHERES):
        center = (12 * uniform() - 6, 9 * uniform() - 4.5, 10 * uniform())
        world.append((center, 0.05 + 0.25 * uniform(), (uniform(), uniform(), uniform())))
    return world


def scene() -> str:
    """Return the scene in the format of Tachyon."""

    def numbers(values: Vector) -> str:
        return " ".join(f"{v:.9f}" for v in values)

    lines = [
        "BEGIN_SCENE",
        f"RESOLUTION {WIDTH} {HEIGHT}",
        "CAMERA",
        f"ZOOM 1.0 ASPECTRATIO 1.0 ANTIALIASING 0 RAYDEPTH {DEPTH} CENTER {numbers(EYE)}",
        "VIEWDIR 0 0 1 UPDIR 0 1 0",
        "END_CAMERA",
        f"BACKGROUND {numbers(BACKGROUND)}",
        f"LIGHT CENTER {numbers(LIGHT)} RAD 0.1 COLOR 1 1 1",
    ]
    for n, (center, radius, color) in enumerate(spheres()):
        lines.append(f"TEXDEF t{n} AMBIENT {AMBIENT} DIFFUSE {DIFFUSE} SPECULAR {MIRROR} OPACITY 1")
        lines.append(f"COLOR {numbers(color)} TEXFUNC 0")
        lines.append(f"SPHERE CENTER {numbers(center)} RAD {radius:.9f} t{n}")
    return "\n".join([*lines, "END_SCENE", ""])


def dot(a: Vector, b: Vector) -> float:
    """Return the scalar product of two vectors."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def along(a: Vector, t: float, b: Vector) -> Vector:
    """Return a + t b."""
    return a[0] + t * b[0], a[1] + t * b[1], a[2] + t * b[2]


def unit(a: Vector) -> Vector:
    """Return the vector of length 1 with the direction of `a`, which must not be zero."""
    return along((0.0, 0.0, 0.0), 1 / math.sqrt(dot(a, a)), a)


def first(world: list[Sphere], origin: Vector, way: Vector) -> tuple[float, Sphere | None]:
    """Return the distance to the first sphere that a ray hits, and the sphere; infinity and None without a hit."""
    nearest, hit = math.inf, None
    for sphere in world:
        (x, y, z), radius, _ = sphere
        x, y, z = x - origin[0], y - origin[1], z - origin[2]
        middle = x * way[0] + y * way[1] + z * way[2]
        square = radius * radius - (x * x + y * y + z * z) + middle * middle
        if square > 0:
            half = math.sqrt(square)
            t = middle - half if middle - half > 1e-5 else middle + half
            if 1e-5 < t < nearest:
                nearest, hit = t, sphere
    return nearest, hit


def color(world: list[Sphere], origin: Vector, way: Vector, depth: int = DEPTH) -> Vector:
    """Return the color that is visible from a point in a direction."""
    t, hit = first(world, origin, way)
    if hit is None:
        return BACKGROUND
    center, _, own_color = hit
    point = along(origin, t, way)
    normal = unit(along(point, -1, center))
    normal = normal if dot(normal, way) < 0 else along((0, 0, 0), -1, normal)
    to_light = along(LIGHT, -1, point)
    light = dot(normal, unit(to_light))
    if light > 0 and first(world, point, unit(to_light))[0] < math.sqrt(dot(to_light, to_light)):
        light = 0
    rgb = along((0, 0, 0), AMBIENT + DIFFUSE * max(light, 0), own_color)
    if depth > 1:
        rgb = along(rgb, MIRROR, color(world, point, along(way, -2 * dot(normal, way), normal), depth - 1))
    return rgb


def check(image: Path) -> str:
    """Return why an image is wrong; "" if it is right."""
    head = f"P6\n{WIDTH} {HEIGHT}\n255\n".encode()
    data = image.read_bytes()
    if not data.startswith(head) or len(data) != len(head) + 3 * WIDTH * HEIGHT:
        return f"{image} is not an image of {WIDTH} x {HEIGHT}"
    randrange, world, wrong_rays = random.Random(7).randrange, spheres(), 0
    for _ in range(RAYS):
        column, row = randrange(WIDTH), randrange(HEIGHT)
        direction = unit(((column + 1 - WIDTH / 2) / HEIGHT, (HEIGHT / 2 - row) / HEIGHT, 1.0))
        offset = len(head) + 3 * (row * WIDTH + column)
        expected = [255 * min(1.0, c) for c in color(world, EYE, direction)]
        is_wrong = any(abs(s - p) > TOLERANCE for s, p in zip(expected, data[offset : offset + 3], strict=True))
        wrong_rays += is_wrong
    return f"{wrong_rays} of {RAYS} rays differ" if wrong_rays > WRONG * RAYS else ""


if __name__ == "__main__":
    if sys.argv[1] == "make":
        Path(sys.argv[2]).write_text(scene(), encoding="ascii")
    elif why := check(Path(sys.argv[2])):
        sys.exit(why)
