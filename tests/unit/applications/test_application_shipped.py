"""Tests of the applications that come with Meshmark: their files, their scripts, and installed programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.applications.application import read_application, shipped
from meshmark.applications.attempt import attempt
from meshmark.applications.configuration import Folders, configurations
from meshmark.applications.preparation import prepare
from meshmark.errors import AbsentError
from support.cli import meshmark

FILES = shipped()
INSTALLABLE = sorted(FILES.keys() - {"llama"})  # llama needs a model
SCRIPTS = next(iter(FILES.values())).parent


def of_installed(name: str, path: Path | None = None) -> None:
    """Skip the test if the program is not installed."""
    app = read_application(path or FILES[name])
    if shutil.which(app.command[0]) is None:
        pytest.skip(f"{app.command[0]} is in the package {app.package}")
    if "ranks" in app.dimensions and shutil.which("mpirun") is None:
        pytest.skip("mpirun is in the package openmpi-bin")


def script(name: str, *arguments: object, here: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(SCRIPTS / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_says_what_its_program_is_and_how_its_result_is_verified(name: str) -> None:
    app = read_application(FILES[name])
    assert app.name == name and app.about and app.package
    assert app.verify.pattern or app.verify.command
    assert not app.figure.pattern or (app.figure.unit != "1" and app.figure.better)
    assert [app.dimensions[d] for d in ("threads", "ranks") if d in app.dimensions] == [("1",)]
    for words in (*app.prepare, app.verify.command or ()):
        for word in words:
            assert not word.startswith("{source}/") or (SCRIPTS / word.removeprefix("{source}/")).is_file()


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_program_that_is_not_installed_is_absent_with_its_package(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    app, folders = read_application(FILES[name]), Folders(tmp_path)
    with pytest.raises(AbsentError, match=f"found no program .*; it is in the package {app.package.replace('+', '.')}"):
        prepare(app, folders, lambda _: None)
        attempt(app, configurations(app)[0], folders, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTALLABLE)
def test_an_installed_program_runs_and_verifies(name: str, tmp_path: Path) -> None:
    of_installed(name)
    completed = meshmark(
        *("measure", "app", name, "--repetitions", 1, "--warmup", 0, "--json", "--no-store"),
        env={"XDG_DATA_HOME": str(tmp_path)},
    )
    assert completed.returncode == 0, completed.stderr
    records = [json.loads(line) for line in completed.stdout.splitlines()]
    app = read_application(FILES[name])
    key = ("figure_of_merit", app.figure.unit) if app.figure.pattern else ("elapsed", "s")
    results = {(r["metric"], r["unit"]): r for r in records if r["type"] == "result"}
    assert results[key]["value"] > 0 and "unverified" not in results[key]["flags"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "old", "new", "reason"),
    [
        ("blast", "blast.toml", "evalue 1e-6", "evalue 1e-40", "planted proteins were not found"),
        ("calculix", "calculix.py", "210_000", "211_000", "verify.expected: found -1.9"),
        ("gromacs", "gromacs.py", "0.002", "0.004", "the energy drifts"),
        ("gromacs", "gromacs.py", "spc.itp", "spce.itp", "the potential energy of a molecule is -45"),
        ("hpcc", "hpcc.toml", "16.0", "1e-9", "verify.pattern: found no match"),
        ("lammps", "lammps.toml", "run 300", "timestep 0.02\nrun 300", "verify.expected: found -4.6"),
        ("nwchem", "nwchem.toml", "aug-cc-pvtz", "aug-cc-pvdz", "verify.expected: found -76.0"),
        ("tachyon", "tachyon.toml", "-format", "-mediumshade -format", "rays differ"),
    ],
)
def test_a_changed_computation_does_not_verify(
    name: str, file: str, old: str, new: str, reason: str, tmp_path: Path
) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "files")
    changed_file = tmp_path / "files" / file
    text = changed_file.read_text()
    assert old in text
    changed_file.write_text(text.replace(old, new))
    path = tmp_path / "files" / f"{name}.toml"
    of_installed(name, path)
    app, folders = read_application(path), Folders(tmp_path / "measurement")
    folders.root.mkdir()
    prepare(app, folders, lambda _: None)
    outcome = attempt(app, configurations(app)[0], folders, 1)
    assert outcome.value is None and outcome.reason.startswith("verify.") and reason in outcome.reason, outcome.reason


# ------------------------------------------------------------------ scripts, without their programs


def test_every_planted_protein_must_be_found_and_no_other(tmp_path: Path) -> None:
    assert script("blast", "make", here=tmp_path).returncode == 0
    planted_hits = (tmp_path / "planted.txt").read_text().splitlines()
    proteins = (tmp_path / "proteins.fasta").read_text().splitlines()
    assert len(set(planted_hits)) == 80 and {len(line) for line in proteins[1::2]} == {350}
    for hits, message in (
        (planted_hits, ""),
        (planted_hits[1:], "1 of 80 planted proteins were not found, 0 others were"),
        ([*planted_hits, "q0 p1x"], "0 of 80 planted proteins were not found, 1 others were"),
        ([], "80 of 80 planted proteins were not found, 0 others were"),
    ):
        (tmp_path / "hits.tsv").write_text("".join(f"{hit.replace(' ', chr(9))}\t1e-50\n" for hit in hits))
        completed = script("blast", "check", "hits.tsv", "planted.txt", here=tmp_path)
        assert (completed.returncode, completed.stderr.strip()) == (bool(message), message)


LOG = """\
There are: 3000 Atoms
  Conserved energy drift: {drift} kJ/mol/ps per atom

	<====  A V E R A G E S  ====>

   Energies (kJ/mol)
        LJ (SR)   Coulomb (SR)   Coul. recip.      Potential    Kinetic En.
    1.30874e+04   -8.43818e+04    5.94878e+02   {potential}    1.23859e+04
"""


@pytest.mark.parametrize(
    ("drift", "potential", "why"),
    [
        ("2.0e-03", "-4.16000e+04", ""),
        ("-2.0e-03", "-4.13000e+04", ""),
        ("7.0e-03", "-4.16000e+04", "the energy drifts by 7.0e-03 kJ/mol/ps per atom; allowed: 0.006"),
        ("-7.0e-03", "-4.16000e+04", "the energy drifts by -7.0e-03 kJ/mol/ps per atom; allowed: 0.006"),
        ("nan", "-4.16000e+04", "the energy drifts by nan kJ/mol/ps per atom; allowed: 0.006"),
        ("2.0e-03", "-4.30000e+04", "the potential energy of a molecule is -43.00 kJ/mol; expected -41.6"),
        ("2.0e-03", "         nan", "the potential energy of a molecule is nan kJ/mol; expected -41.6"),
    ],
)
def test_the_energies_of_water_must_be_right(drift: str, potential: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "water.log").write_text(LOG.format(drift=drift, potential=potential))
    completed = script("gromacs", "check", "water.log", here=tmp_path)
    assert (completed.returncode, completed.stderr.strip()) == (bool(why), why)


def test_a_log_without_energies_and_an_image_of_the_background_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "water.log").write_text("There are: 3000 Atoms\n")
    assert script("gromacs", "check", "water.log", here=tmp_path).stderr == "the log has no energies\n"
    image = tmp_path / "image.ppm"
    image.write_bytes(b"P6\n640 480\n255\n" + bytes((25, 51, 102)) * 640 * 480)
    completed = script("tachyon", "check", image, here=tmp_path)
    assert completed.returncode == 1 and 200 < int(completed.stderr.split()[0]) < 400
    image.write_bytes(image.read_bytes()[:-1])
    assert "is not an image of 640 x 480" in script("tachyon", "check", image, here=tmp_path).stderr


def test_the_bricks_of_the_cantilever_fill_it(tmp_path: Path) -> None:
    assert script("calculix", "beam.inp", here=tmp_path).returncode == 0
    lines = (tmp_path / "beam.inp").read_text().splitlines()
    start = lines.index("*ELEMENT, TYPE=C3D20R, ELSET=BEAM")
    nodes = {int(n): list(map(float, coordinates)) for n, *coordinates in (line.split(",") for line in lines[1:start])}
    volume = 0.0
    for index in range(start + 1, lines.index("*NSET, NSET=CLAMPED"), 2):
        brick = [nodes[int(n)] for n in f"{lines[index]}{lines[index + 1]}".split(",")[1:]]
        assert len(brick) == 20
        # A node in the middle of an edge, as the manual of CalculiX numbers them, lies between the ends of the edge.
        ends = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)]
        for node, (a, b) in zip(brick[8:], ends, strict=True):
            assert node == pytest.approx([(x + y) / 2 for x, y in zip(brick[a], brick[b], strict=True)], abs=1e-8)
        volume += (brick[6][0] - brick[0][0]) * (brick[6][1] - brick[0][1]) * (brick[6][2] - brick[0][2])
    assert volume == pytest.approx(100 * 10 * 10)
