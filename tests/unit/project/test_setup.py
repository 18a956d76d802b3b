"""`make setup` names what is missing before it installs anything, checks it, and works for every user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

SCRIPT = ROOT / "tools" / "setup.sh"


def program(place: Path, *lines: str) -> None:
    place.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    place.chmod(0o755)


def test_setup_says_what_to_install_where_it_may_not(tmp_path: Path) -> None:
    """The PATH lacks cmake and apt-get: each of the three kinds of systems gets one message, with status 1."""
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    for tool in (
        "bash",
        "c++",
        "cat",
        "grep",
        "sed",
        "tr",
        "sort",
        "dirname",
        "nproc",
        "mkdir",
        "id",
        "uname",
        "realpath",
        "stat",
    ):
        path = shutil.which(tool)
        if path:
            (tmp_path / tool).symlink_to(path)
    completed = subprocess.run(
        ["bash", str(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert completed.returncode == 1
    for line in ("apt-get install", "dnf install", "spack install"):
        assert re.search(rf"{line}.*\bcmake\b", completed.stderr), completed.stderr
    assert "Traceback" not in completed.stderr


def test_setup_lists_all_packages_before_it_installs_one(tmp_path: Path) -> None:
    """The apt-get on the PATH installs nothing, and pkg-config finds no package."""
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    shutil.copy2(SCRIPT, tree / "tools")
    log = tmp_path / "said"
    program(tmp_path / "apt-get", f'echo "apt-get: $*" >>{log}')
    program(tmp_path / "sudo", 'shift; exec "$@"')
    program(tmp_path / "pkg-config", "exit 1")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with log.open("a") as out:
        completed = subprocess.run(
            [tree / "tools/setup.sh", "--tests"], stderr=out, env=environment, timeout=120, check=False
        )
    before, _, after = log.read_text().partition("apt-get: ")
    assert completed.returncode == 1 and "setup: error: the system lacks packages" in after
    assert "as root" in before and "to build and measure: " in before
    installs = re.findall(r" install -y --no-install-recommends (.*)", after)
    packages = {word for line in installs for word in line.split()}
    assert {"libhwloc-dev"} <= packages <= set(before.split())
    if os.uname().machine == "x86_64":
        assert "libmpich-dev" in packages and "for the tests: " in before


def test_setup_takes_nothing_from_a_registry_without_its_hash() -> None:
    calls = [line.strip() for line in SCRIPT.read_text().splitlines() if re.search(r"pip install|\[@\]\}|npm ", line)]
    calls = [call for call in calls if not call.startswith(("install=(", '"${as_root[@]}"'))]
    allowed = ("--require-hashes -r requirements/", "--no-index --no-deps ", "npm ci ")
    assert len(calls) >= 4
    assert [call for call in calls if not any(word in call for word in allowed)] == []


def test_root_takes_a_python_that_others_can_start(tmp_path: Path) -> None:
    """Run the lines of setup.sh that choose an interpreter, with one in a closed folder first on the PATH."""
    text = SCRIPT.read_text()
    chooses = text[text.index("closed() {") : text.index('have "$python" ||')]
    hidden = tmp_path / "home" / "python3"
    hidden.parent.mkdir(mode=0o700)
    asks = '[ "$2" = "import sys; print(sys._base_executable)" ]'
    program(hidden, f'if {asks}; then echo {hidden}; else exec {sys.executable} "$@"; fi')

    def chosen(user: int, asked: str = "") -> str:
        line = f'id() {{ echo {user}; }}\n{chooses}\necho "$python"'
        environment = {**os.environ, "PYTHON": asked, "PATH": f"{hidden.parent}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "-euc", line], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert chosen(1000) == "python3\n"
    assert chosen(0, asked="python3") == "python3\n", "what was asked for is taken"
    system = [p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if enough(p)]
    assert chosen(0) == f"{(system or ['python3'])[0]}\n"


def enough(python: str) -> bool:
    line = "import sys; sys.exit(sys.version_info < (3, 11))"
    return Path(python).exists() and subprocess.run([python, "-c", line], check=False).returncode == 0


def test_what_closes_a_path_to_others_is_named(tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    function = text[text.index("closed() {") : text.index("# --- Which Python")]
    file = tmp_path / "outer" / "inner" / "python3"
    file.parent.mkdir(parents=True)
    program(file)

    def closed() -> str:
        line = f'{function}\nclosed "{file}"'
        return subprocess.run(["bash", "-euc", line], capture_output=True, text=True, check=True).stdout.strip()

    before = closed()  # the folder of pytest is closed
    assert before in {str(p) for p in tmp_path.parents} | {str(tmp_path), ""}
    (tmp_path / "outer").chmod(0o700)
    assert closed() == (before or str(tmp_path / "outer"))


def test_what_setup_made_can_be_started_by_any_user_who_reaches_it() -> None:
    """This holds after `umask 077`, too: every file of .venv is readable; the programs and the interpreter are
    executable."""
    venv, binaries = ROOT / ".venv", ROOT / "build" / "release" / "bin"
    files = [p for p in venv.rglob("*") if not p.is_symlink()]
    assert [p for p in files if not p.stat().st_mode & (0o001 if p.is_dir() else 0o004)] == []
    programs = [venv / "bin" / "python", venv / "bin" / "meshmark", *binaries.glob("meshmark-*")]
    assert [p for p in programs if not p.stat().st_mode & 0o001] == []
