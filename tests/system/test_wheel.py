"""The wheel is built from a copy of the tree, complete, and usable where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from support.mpi_here import installed, needed
from support.paths import ROOT

BUILT = [Path("src/meshmark/web/static"), Path("src/meshmark/views/charts/static")]
MINUTES = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(30 * MINUTES)]


def done(*words: str | Path, cwd: Path) -> str:
    """Return the output of a command, which must succeed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MESHMARK_", "PYTHON", "PIP_TARGET"))}
    completed = subprocess.run(
        [str(w) for w in words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if "No matching distribution found for scikit-build-core" in completed.stderr:
        pytest.skip("pip's index does not offer scikit-build-core here")
    assert completed.returncode == 0, f"{' '.join(map(str, words))}: {completed.stderr[-3000:]}"
    return completed.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the files that git has or would add, and from the folders in `BUILT`."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    listing = done("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in (n for n in listing if (ROOT / n).is_file()):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    for folder in BUILT:
        shutil.copytree(ROOT / folder, tree / folder)
    done(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", out, tree, cwd=out)
    (built_wheel,) = out.glob("meshmark-*.whl")
    return built_wheel


def test_the_wheel_has_all_that_the_package_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {f.filename: f for f in archive.infolist()}
    names = ["meshmark-probe", "meshmark-watch", "meshmark-model", "meshmark-place", "meshmark-load", "meshmark-comm"]
    for name in (*names, *(f"meshmark-comm-{kind}" for kind in installed())):
        assert files[f"meshmark/bin/{name}"].external_attr >> 16 & 0o111, f"{name} is no program"
    for name in ("place", "values"):
        assert f"meshmark/lib/libmeshmark-{name}.so" in files
    for name in ("static/index.html", "static/main.js", "static/main.css", "grafana.json"):
        assert f"meshmark/web/{name}" in files
    for name in ("charts.js", "font.json", "regular.ttf", "bold.ttf", "licences.txt"):
        assert f"meshmark/views/charts/static/{name}" in files
    # Files beside the code of the package are included.
    listing = done("git", "ls-files", "-z", "src/meshmark", cwd=ROOT).split("\0")
    expected = {n.removeprefix("src/") for n in listing if (ROOT / n).is_file()}
    assert len({n for n in expected if n.startswith("meshmark/model/machines/")}) > 5
    assert len({n for n in expected if n.startswith("meshmark/machine/published/reference/")}) > 5
    assert expected <= files.keys(), expected - files.keys()
    assert not [n for n in files if "__pycache__" in n]


def test_the_wheel_is_of_use_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    done(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python, command = (tmp_path / "venv" / "bin" / n for n in ("python", "meshmark"))
    done(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The dependencies are already installed. The folder follows the packages of the wheel, so its meshmark is used.
    site = Path(done(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    line = "from meshmark.native import find_native; print(find_native('meshmark-watch', 'MESHMARK_WATCH'))"
    assert Path(done(python, "-c", line, cwd=tmp_path).strip()).is_relative_to(site)
    assert "measure" in done(command, "--help", cwd=tmp_path)
    library = "from meshmark.native import find_native; print(find_native('libmeshmark-values.so', folder='lib'))"
    assert Path(done(python, "-c", library, cwd=tmp_path).strip()).is_relative_to(site)
    machines = done(command, "list", "machines", cwd=tmp_path)
    assert "gs1280-16" in machines
    assert "gs1280-16" in done(command, "model", "list", cwd=tmp_path)
    assert "--palette" in done(command, "watch", "--help", cwd=tmp_path)
    assert done(command, "watch", "--json", "--rate", "10", "--duration", "0.3", cwd=tmp_path).count("\n") == 4
    for kind in installed():
        needed(kind)
        listing = done(
            command, "measure", "barrier", "--mpi", kind, "--ranks", "2", "--budget", "1s", "--json", cwd=tmp_path
        )
        assert json.loads(listing)["conditions"]["mpi"] == kind
