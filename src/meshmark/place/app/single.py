"""One configuration of an application as a command, for those that place it themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from meshmark.errors import MeshmarkError
from meshmark.place.app.application import Application, filled
from meshmark.place.app.attempt import Results, emptied, home, write_files
from meshmark.place.app.configuration import Folders, configurations, environment, placeholders
from meshmark.place.app.preparation import prepare
from meshmark.place.app.verification import verified
from meshmark.place.trial import Around


def single(app: Application, root: Path, notify: Callable[[str], None]) -> tuple[list[str], Around]:
    """The command of the first configuration of an application, which is built and has its inputs.

    Args:
        root: Folder for builds, inputs and runs.

    Raises:
        MeshmarkError: It cannot be built.
    """
    one, folders = configurations(app)[0], Folders(root)
    root.mkdir(parents=True, exist_ok=True)
    made = prepare(app, folders, notify)
    if why := made.failed.get(one.values.get("build", "")):
        raise MeshmarkError(f"{app.name}: build {one.values['build']}: {why}")
    values, folder = placeholders(app, one, folders), home(app, folders, 0)
    results: list[Results] = []

    def begin() -> None:
        emptied(folders.run)
        write_files(app, one, folders, 0)
        results[:] = [Results(app, one, folders, 0)]

    def added() -> str:
        return results[0].text()

    around = Around(
        folder, environment(app, one, values), begin, added, lambda text: verified(app.verify, text, folder, values)
    )
    return [filled(word, values) for word in app.command], around
