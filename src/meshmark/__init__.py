"""Measures, watches, loads, places, models and compares NUMA machines.

The Python interface: ``import meshmark as mm``, then `mm.records`, `mm.measure`, `mm.compare` and so on, see
docs/reference/python.md. Its functions are imported on first use, because every start of the command imports this
module.
"""

import sys

TYPE_CHECKING = (
    False  # for type checkers it is true; importing it from typing would take longer than everything else here
)
if TYPE_CHECKING:
    from meshmark.errors import AbsentError as AbsentError
    from meshmark.errors import MeshmarkError as MeshmarkError
    from meshmark.errors import UsageError as UsageError
    from meshmark.interface import Model as Model
    from meshmark.interface import chart as chart
    from meshmark.interface import compare as compare
    from meshmark.interface import fit as fit
    from meshmark.interface import measure as measure
    from meshmark.interface import model as model
    from meshmark.interface import recording as recording
    from meshmark.interface import records as records
    from meshmark.interface import watch as watch
    from meshmark.results import Comparison as Comparison
    from meshmark.results import Fit as Fit
    from meshmark.results import Recording as Recording
    from meshmark.table import Table as Table

    __version__: str

# The names of the interface, by the module that defines them.
_OF = {
    "errors": ("AbsentError", "MeshmarkError", "UsageError"),
    "interface": ("Model", "chart", "compare", "fit", "measure", "model", "recording", "records", "watch"),
    "results": ("Comparison", "Fit", "Recording"),
    "table": ("Table",),
}
_MODULE_OF = {name: module for module, names in _OF.items() for name in names}
__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 (texts, too)


class _InterfaceModule(type(sys)):  # type: ignore[misc]  # ModuleType, without an import
    """Keeps functions that have the name of a package: the import system would replace them with the package."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and isinstance(value, type(sys))):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _InterfaceModule


def __getattr__(name: str) -> object:
    if name == "__version__":
        from meshmark.native import VERSION

        return VERSION
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'meshmark' has no attribute {name!r}")
    from importlib import import_module

    attribute: object = getattr(import_module(f"meshmark.{_MODULE_OF[name]}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
