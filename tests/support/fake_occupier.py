"""A program `meshmark-load` whose loads take as long as they would in a made-up cache: processes that need more of it
than it has wait for memory. It runs no kernel."""

from __future__ import annotations

import sys
from pathlib import Path

NEAR_S, FAR_S = 20e-9, 100e-9
# The folder has the size of the cache, and a file for each process with its memory; `program` is that of the program.
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
    """A cache that such processes share, unless it is `apart`.

    Args:
        folder: For the program and what it knows.
        bytes_: That the cache really has.
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
        """Each process has a cache of its own."""
        (self.folder / "alone").write_text("")

    def refuses(self) -> None:
        """Processes fail as they start."""
        (self.folder / "refuse").write_text("")

    def of_program(self, bytes_: int) -> str:
        """A shell command that lets a program fill so much of it."""
        return f"echo {bytes_} > {self.folder}/program"

    @property
    def parts(self) -> list[int]:
        """Memory of all processes that there were."""
        return sorted(int(p.read_text()) for p in self.folder.glob("[0-9]*"))

    @property
    def processes(self) -> list[int]:
        """Ids of all processes that there were."""
        return [int(p.name) for p in self.folder.glob("[0-9]*")]
