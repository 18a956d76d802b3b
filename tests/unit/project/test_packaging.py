"""The descriptions of packages are valid, have the version of the project, and name what exists."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

PACKAGING = ROOT / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]
PROGRAMS = {"probe", "watch", "place", "load", "model", "node"}
SPACK = PACKAGING / "spack" / "packages" / "meshmark" / "package.py"
EASYBUILD = PACKAGING / "easybuild" / f"Meshmark-{VERSION}.eb"
CONDA = PACKAGING / "conda" / "recipe.yaml"
# Packages whose names in other repositories differ from their names in the Python Package Index.
SPACK_NAMES = {"duckdb": "duckdb", "backports.zstd": "py-backports-zstd"}
CONDA_NAMES = {"duckdb": "python-duckdb", "prometheus-client": "prometheus_client"}


def described() -> dict[str, Any]:
    return tomllib.loads((PACKAGING / "meshmark-native.toml").read_text())


def requirements() -> dict[str, str]:
    """Return the oldest version of each package that the Python package needs, by name."""
    words = [re.fullmatch(r"([\w.-]+)>=([\d.]+)(; .*)?", word) for word in PROJECT["dependencies"]]
    assert all(words)
    return {match[1]: match[2] for match in words if match}


def yaml(path: Path) -> Any:
    module = pytest.importorskip("yaml")
    return module.safe_load(path.read_text())


def test_the_bundle_has_the_programs_that_packages_promise() -> None:
    line = re.search(r'^programs="(.*)"', (ROOT / "tools" / "bundle.sh").read_text(), re.M)
    assert line and {word.removeprefix("meshmark-") for word in line[1].split()} == PROGRAMS
    assert described()["files"]["usr/bin"] == ["bundle/meshmark-*"]


def test_the_native_package_names_files_that_exist() -> None:
    copied = set(re.findall(r"\S+", re.search(r"^cp (LICENSE .*) ", (ROOT / "tools/bundle.sh").read_text(), re.M)[1]))  # type: ignore[index]
    d = described()
    assert d["name"] == "meshmark-native" and d["summary"] and len(d["summary"]) < 60
    for files in (d["files"], d["deb"]["files"], d["rpm"]["files"]):
        for pattern in (p for patterns in files.values() for p in patterns if "*" not in p):
            in_bundle = pattern.removeprefix("bundle/")
            assert (ROOT / pattern).is_file() or in_bundle in {Path(name).name for name in copied}, pattern


def test_packages_are_found_by_their_names() -> None:
    spec = importlib.util.spec_from_file_location("tools_packages", ROOT / "tools" / "packages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.version() == VERSION
    assert [p.name for p in module.sources("packaging/debian/*", ROOT, ROOT)] == ["copyright", "meshmark-native"]
    with pytest.raises(FileNotFoundError, match=r"bundle/meshmark-nothing: no such file"):
        module.sources("bundle/meshmark-nothing", ROOT, ROOT)


def test_spack_has_the_version_and_all_requirements() -> None:
    tree = ast.parse(text := SPACK.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    words: dict[str, list[str]] = {}
    for call in calls:
        if call.args and isinstance(call.args[0], ast.Constant):
            words.setdefault(call.func.id, []).append(str(call.args[0].value))  # type: ignore[attr-defined]
    assert words["version"] == ["main", VERSION]
    for name, oldest in requirements().items():
        prefix = f"{SPACK_NAMES.get(name, f'py-{name}')}@{oldest}:"
        assert [word for word in words["depends_on"] if word.split()[0] == prefix], name
    assert "sha256" not in text and "PLACEHOLDER" in text
    assert yaml(PACKAGING / "spack" / "repo.yaml")["repo"]["namespace"] == "meshmark"


def test_easybuild_has_the_version_and_all_programs() -> None:
    text = EASYBUILD.read_text()
    values = {
        node.targets[0].id: node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert ast.literal_eval(values["version"]) == VERSION
    assert ast.literal_eval(values["checksums"]) == [None] and "PLACEHOLDER" in text
    names = re.search(r"for name in (\(.*?\))", text)
    assert names and set(ast.literal_eval(names[1])) == PROGRAMS


def test_conda_has_the_version_and_all_requirements() -> None:
    recipe = yaml(CONDA)
    assert recipe["context"]["version"] == VERSION and "PLACEHOLDER" in CONDA.read_text()
    assert (CONDA.parent / recipe["source"]["path"]).resolve() == ROOT.resolve()
    assert all((ROOT / name).is_file() for name in recipe["about"]["license_file"])
    needed = {f"{CONDA_NAMES.get(name, name)} >={oldest}" for name, oldest in requirements().items()}
    assert needed | {f"python {PROJECT['requires-python']}"} == set(recipe["requirements"]["run"])
    assert recipe["build"]["python"]["entry_points"] == [f"meshmark = {PROJECT['scripts']['meshmark']}"]


def test_the_container_installs_the_wheel_for_a_user_without_privileges() -> None:
    text = (PACKAGING / "Containerfile").read_text()
    instructions = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert instructions[0].startswith("FROM python:3.") and "USER 1000" in instructions
    assert re.search(r"pip install .*/dist/meshmark-\*-manylinux", text)
    for option in ("--cap-add SYS_NICE", "--cap-add PERFMON", "Never use --privileged"):
        assert option in text


def test_the_page_lists_every_package() -> None:
    page = (ROOT / "docs" / "how-to" / "packages.md").read_text()
    assert all(f"| {name}" in page for name in ("`.deb`", "`.rpm`", "container", "EasyBuild", "conda", "Spack"))
    assert f"meshmark-native_{VERSION}-1_amd64.deb" in page
