"""A simulated program `meshmark-load`, whose processes slow each other and a program by factors of a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

# The folder has a file per process with its name, and `program` while the program runs; `speeds` has the table.
_SCRIPT = """\
#!{python}
import json, os, sys, time
from pathlib import Path
folder = Path({folder!r})
with open(sys.argv[2]) as file:
    name = json.load(file)["variants"][0]["name"]
if name == (folder / "refuse").read_text():
    sys.exit("meshmark-load: error: refused")
(folder / str(os.getpid())).write_text(name)
speeds = json.loads((folder / "speeds").read_text())
print(json.dumps(dict(type="ready")), flush=True)
while True:
    pids = [p for p in folder.glob("[0-9]*") if p.name != str(os.getpid()) and Path("/proc", p.name).exists()]
    others = [p.read_text() for p in pids]
    others += [p.read_text() for p in folder.glob("program")]
    speed = min([speeds.get(name, {{}}).get(other, 1.0) for other in others], default=1.0)
    print(json.dumps(dict(type="window", cpu_s=0.1, line_read_bytes=1e12, calls=1e4 * speed)), flush=True)
    time.sleep(0.005)
"""
_PROGRAM = """\
import json, sys, time
from pathlib import Path
folder, name = Path({folder!r}), sys.argv[1]
marker = folder / "program"
marker.write_text(name)
speeds = json.loads((folder / "speeds").read_text())
others = [p.read_text() for p in folder.glob("[0-9]*") if Path("/proc", p.name).exists()]
time.sleep(0.15)
marker.unlink(missing_ok=True)
print("time", 1 / min([speeds.get(name, {{}}).get(other, 1.0) for other in others], default=1.0))
"""


class MadePressures:
    """Simulated pressures.

    Args:
        folder: Folder of the programs and their state.
        speeds: Speed of each process or program beside another, relative to its speed alone; 1 if it is not given.
    """

    def __init__(self, folder: Path, speeds: Mapping[str, Mapping[str, float]]) -> None:
        self.folder, self.load = folder, folder / "meshmark-load"
        folder.mkdir()
        self.load.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder)))
        self.load.chmod(0o755)
        (folder / "program.py").write_text(_PROGRAM.format(folder=str(folder)))
        (folder / "speeds").write_text(json.dumps(speeds))
        self.refuse("")

    def refuse(self, name: str) -> None:
        """Make processes with this name fail."""
        (self.folder / "refuse").write_text(name)

    def command(self, name: str) -> list[str]:
        """Return the command of a program, which prints its time."""
        return [sys.executable, str(self.folder / "program.py"), name]
