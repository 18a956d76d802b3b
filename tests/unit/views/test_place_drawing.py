"""The drawing of `meshmark place --svg`: the CPUs of a job have its colour and number, and no other CPUs have."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from meshmark.machine.sources import from_synthetic
from meshmark.place.native import find_place
from meshmark.views.topology_svg import JOB_FILLS, topology_svg
from support.cli import meshmark

SVG = "{http://www.w3.org/2000/svg}"


def place(*words: str) -> subprocess.CompletedProcess[str]:
    return meshmark("place", *words)


def fills(svg: str, kind: str) -> dict[str, str]:
    """Return the colour of each box by its label; "" if the box has no fill of a job."""
    colour_by_label = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        box, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        if box is None or label is None or kind not in (box.get("class") or ""):
            continue
        colour = re.search(r"fill:(#[0-9a-f]{6})", box.get("style") or "")
        colour_by_label[str(label.text)] = colour[1] if colour else ""
    return colour_by_label


def test_cores_show_who_holds_them() -> None:
    parts = from_synthetic("pack:2 [numa] core:2 pu:2").to_dict()
    cores = fills(topology_svg(parts, {0: [1], 1: [1], 4: [2], 5: [2]}), "t-core")
    first_fill, second_fill = JOB_FILLS[:2]
    assert cores == {"CPU 0,1 · job 1": first_fill, "CPU 2,3": "", "CPU 4,5 · job 2": second_fill, "CPU 6,7": ""}


def test_without_jobs_the_drawing_is_the_reports() -> None:
    drawing = topology_svg(from_synthetic("pack:2 core:2 pu:1").to_dict())
    assert "<style>" not in drawing and set(fills(drawing, "t-core").values()) == {""}


@pytest.mark.parametrize(
    ("machine", "kind", "held"),
    [
        (["--on", "gs1280-16"], "node", {"0", "1", "4", "5"}),
        (["--topology", "pack:2 [numa] core:4 pu:1"], "t-core", {f"CPU {c} · job 1" for c in range(4)}),
    ],
)
def test_a_plan_is_drawn_on_its_machine(machine: list[str], kind: str, held: set[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    completed = place(*machine, "--policy", "compact", "--jobs", "4", "--svg", str(file))
    assert completed.returncode == 0, completed.stderr
    colour_by_label = fills(file.read_text(), kind)
    assert {label for label, colour in colour_by_label.items() if colour} == held
    assert set(colour_by_label.values()) == {"", JOB_FILLS[0]}


def test_the_plan_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = tmp_path / "meshmark-place"
    counting.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\nexec {find_place()} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("MESHMARK_PLACE", str(counting))
    words = ["--topology", "pack:2 core:2 pu:1", "--policy", "pack", "--svg", str(tmp_path / "plan.svg"), "--jobs"]
    completed = place(*words, "2,9")
    assert completed.returncode == 1 and "1 of 2 jobs could not be placed" in completed.stderr, completed
    assert (tmp_path / "plan.svg").exists() and "job  slots" in completed.stdout
    assert (tmp_path / "calls").read_text().split().count("plan") == 1
    assert place(*words, "none").returncode == 2


def test_only_svg_is_written() -> None:
    completed = place("--policy", "any", "--jobs", "1", "--svg", "plan.png")
    assert (
        completed.returncode == 2
        and "--svg: found 'plan.png'" in completed.stderr
        and "Traceback" not in completed.stderr
    )
