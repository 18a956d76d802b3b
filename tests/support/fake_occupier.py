"""A simulated program `meshmark-load`: its loads take as long as they would in a simulated cache.

Processes that need more of the cache than they have wait for memory. The program runs no kernel."""

from __future__ import annotations

import sys
from pathlib import Path

NEAR_S, FAR_S = 20e-9, 100e-9
# The folder has the size of the cache, and a file per process with its memory; `program` holds that of the program.
_SCRIPT = """\
#!{python}
import json, os, sys, time
from pathlib import Path
folder = Path({folder!r})
if (folder / "refuse").exists():
    sys.exit("meshmark-load: error: refused")
with open(sys.argv[2]) as file:
    volume = json.load(file)["variants"][0]["volume_bytes"]
own = folder / str(os.getpid())
own.write_text(str(volume))
print(json.dumps(dict(type="ready")), flush=True)
while True:
    there = [p for p in folder.glob("[0-9]*") if Path("/proc", p.name).exists()] + [*folder.glob("program")]
    every = sum(int(p.read_text() or 0) for p in there)
    cache, alone = int((folder / "bytes").read_text()), (folder / "alone").exists()
    near, far = json.loads((folder / "times").read_text())
    load_s = near if (volume if alone else every) <= cache else far
    loads = 20 * volume / 64
    line = dict(type="window", cpu_s=loads * load_s, line_read_bytes=loads / 32 * 34 * 64)
    print(json.dumps(line), flush=True)
    time.sleep(0.005)
"""


class MadeCache:
    """A cache that its processes share, unless `apart` was called.

    Args:
        folder: Folder of the program and its state.
        bytes_: Size of the cache.
    """

    def __init__(self, folder: Path, bytes_: int) -> None:
        self.folder, self.program = folder, folder / "meshmark-load"
        folder.mkdir()
        self.program.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder)))
        self.program.chmod(0o755)
        self.holds(bytes_)
        self.takes(NEAR_S, FAR_S)

    def holds(self, bytes_: int) -> None:
        (self.folder / "bytes").write_text(str(bytes_))

    def takes(self, near_s: float, far_s: float) -> None:
        (self.folder / "times").write_text(f"[{near_s}, {far_s}]")

    def apart(self) -> None:
        """Give each process a separate cache."""
        (self.folder / "alone").write_text("")

    def refuses(self) -> None:
        """Let processes fail when they start."""
        (self.folder / "refuse").write_text("")

    def of_program(self, bytes_: int) -> str:
        """Return a shell command that lets a program use so many bytes of the cache."""
        return f"echo {bytes_} > {self.folder}/program"

    @property
    def parts(self) -> list[int]:
        """Return the memory of all processes that were started."""
        return sorted(int(p.read_text()) for p in self.folder.glob("[0-9]*"))

    @property
    def processes(self) -> list[int]:
        """Return the IDs of all processes that were started."""
        return [int(p.name) for p in self.folder.glob("[0-9]*")]
