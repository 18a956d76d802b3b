"""One configuration of an application as a command, for those that place it themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshmark.errors import MeshmarkError
from meshmark.place.app.application import Application, filled
from meshmark.place.app.attempt import home, write_files
from meshmark.place.app.configuration import Folders, configurations, environment, placeholders
from meshmark.place.app.preparation import prepare
from meshmark.place.app.verification import verified


@dataclass(frozen=True, slots=True)
class Single:
    """A command with all that belongs to it.

    Attributes:
        folder: In which it runs.
        environment: Variables besides those of this process.
        wrong: Why the output of a run is wrong; "" if it is right.
    """

    command: list[str]
    folder: Path
    environment: Mapping[str, str]
    wrong: Callable[[str], str]


def single(app: Application, root: Path, notify: Callable[[str], None]) -> Single:
    """The first configuration of an application, built and with its inputs.

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
    write_files(app, one, folders, 0)
    values, folder = placeholders(app, one, folders), home(app, folders, 0)
    return Single(
        [filled(word, values) for word in app.command],
        folder,
        environment(app, one, values),
        lambda text: verified(app.verify, text, folder, values),
    )
