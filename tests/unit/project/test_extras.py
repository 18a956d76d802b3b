"""If an optional package is missing, the error names the command that installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from meshmark.errors import AbsentError, extra
from meshmark.fleet.health.screening import Discoveries
from meshmark.fleet.nodesets import expand, fold
from meshmark.measure.importers.programs import kerncraft

USES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "a set of nodes": ("fleet", "ClusterShell.NodeSet", lambda: expand("n[1-2]")),
    "names of nodes": ("fleet", "ClusterShell.NodeSet", lambda: fold(["n1"])),
    "the nodes to name": ("fleet", "online_fdr.p_values", Discoveries),
    "a machine file": ("kerncraft", "yaml", lambda: kerncraft.read(SimpleNamespace(text="clock: 1 GHz"))),
}


@pytest.mark.parametrize("use", USES)
def test_a_missing_package_is_named_with_its_extra(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, package, call = USES[use]
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    with pytest.raises(AbsentError, match=rf"{package}.* is not installed: pip install 'meshmark\[{name}\]'"):
        call()


def test_a_missing_module_of_this_package_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError), extra("fleet"):
        import meshmark.no_such_module  # noqa: F401
