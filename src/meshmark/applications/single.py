"""Provides one configuration of an application as a command, for callers that place it themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from meshmark.applications.application import Application, filled
from meshmark.applications.attempt import ResultsFile, emptied, home, write_files
from meshmark.applications.configuration import Folders, configurations, environment, placeholders
from meshmark.applications.preparation import prepare
from meshmark.applications.resources.machine_limits import NEVER_USUAL
from meshmark.applications.verification import verified
from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.trial import RunSurroundings
from meshmark.store.files import make_folder

_AS_USUAL: Final = {"ranks": "1", "copies": "1", "scheduler": "other", "cache": "all", "clock": "all"}


def single(app: Application, root: Path, notify: Callable[[str], None]) -> tuple[list[str], RunSurroundings]:
    """Prepare the first configuration of an application, and return its command and its surroundings.

    Args:
        app: The application.
        root: Folder for builds, inputs and runs.
        notify: Function that is called with lines of text while the application is built.

    Raises:
        UsageError: The first configuration has a dimension that only `measure app` implements.
        MeshmarkError: The application cannot be built.
    """
    configuration, folders = configurations(app)[0], Folders(root)
    for name, default in _AS_USUAL.items():
        if configuration.values.get(name, default) != default:
            raise UsageError(
                f"{app.name}: dimensions.{name}: found {configuration.values[name]} as the first value; "
                f"allowed here: {default}"
            )
    if name := next((n for n in NEVER_USUAL if n in configuration.values), ""):
        raise UsageError(
            f"{app.name}: dimensions.{name}: found {configuration.values[name]}, which is not allowed here"
        )
    make_folder(root)
    prepared = prepare(app, folders, notify)
    if reason := prepared.failed.get(configuration.values.get("build", "")):
        raise MeshmarkError(f"{app.name}: build {configuration.values['build']}: {reason}")
    values, folder = placeholders(app, configuration, folders), home(app, folders, 0)
    results: list[ResultsFile] = []

    def begin() -> None:
        emptied(folders.run)
        write_files(app, configuration, folders, 0)
        results[:] = [ResultsFile(app, configuration, folders, 0)]

    def added() -> str:
        return results[0].text()

    around = RunSurroundings(
        folder,
        environment(app, configuration, values),
        begin,
        added,
        lambda text: verified(app.verify, text, folder, values),
    )
    return [filled(word, values) for word in app.command], around
