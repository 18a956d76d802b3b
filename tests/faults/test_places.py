"""Commands in hostile places: other users, no home, nothing writable, little memory, few descriptors.

Each command works, or ends with one line and a matching status; none hangs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from given import write_results
from namespace import NAMESPACE
from started import Ended, Place

import meshmark
from support.cli import COMMAND

NOBODY = "65534"
NO_NAME = "61234"  # no user has this number, so it has no home
LATENCY = ["measure", "latency", "--footprint", "16KiB", "--budget", "2s", "--interval", "60"]
SPEC = """name = "short"
[[step]]
instrument = "latency"
options = { footprint = "16KiB", budget = "2s", interval = 60 }
"""
COMMANDS = {
    "version": ["version"],
    "list": ["list", "instruments"],
    "measure": LATENCY,
    "measure --no-store": [*LATENCY, "--no-store"],
    "measure --on": ["measure", "latency", "--on", "gs1280-4", "--footprint", "1MiB"],
    "survey": ["survey", "--spec", "{here}/spec.toml"],
    "report": ["report"],
    "store import": ["store", "import", "{here}/in.jsonl"],
    "store list": ["store", "list"],
    "record": ["record", "--rate", "20", "--duration", "0.3", "--out", "{out}/r.parquet"],
    "model show": ["model", "show", "gs1280-4", "--svg", "{out}/x.svg"],
    "load run": ["load", "run", "{here}/sc.toml"],
    "advise": [
        "advise",
        "--policies",
        "none,compact",
        "--memory",
        "default",
        "--pages",
        "default",
        "--budget",
        "1s",
        "--",
        "true",
    ],
    "machine capture": ["machine", "capture", "{out}/m.tar.gz"],
    "doctor": ["doctor"],
    "slots": ["slots"],
    "run": ["run", "--bind", "compact", "--", "true"],
}
ABSENT = {"report"}  # nothing was measured before


@dataclass(frozen=True)
class Where:
    """A place.

    Args:
        wrap: Words before the command; `{folder}` is replaced by the folder of the place.
        more: Environment; None: not set.
        works: Whether all commands succeed.
        user: Number of the user who runs the commands; "" for the user of the tests.
        namespace: Whether the place is a private mount namespace.
    """

    wrap: Sequence[str] = ()
    more: Mapping[str, str | None] = field(default_factory=dict)
    works: bool = False
    user: str = ""
    namespace: bool = False
    closed: str = ""  # a separate folder that cannot be written
    said: str = ""  # text that is a sufficient explanation, as some libraries abort without memory


def shell(line: str) -> list[str]:
    return ["bash", "-c", f'{line} exec "$@"', "bash"]


NO_HOME = {"HOME": None, "XDG_DATA_HOME": None, "XDG_CONFIG_HOME": None, "XDG_STATE_HOME": None, "XDG_CACHE_HOME": None}
PLACES = {
    "another user": Where(user=NOBODY, works=True),
    "a user without a name": Where(user=NO_NAME, works=True),
    "no home": Where(user=NO_NAME, more=NO_HOME),
    "home not writable": Where(user=NOBODY, more={**NO_HOME, "HOME": "{folder}/closed"}, closed="closed"),
    "data not writable": Where(user=NOBODY, more={"XDG_DATA_HOME": "{folder}/closed"}, closed="closed"),
    "read-only": Where(
        [*NAMESPACE, *shell("mount --bind / / && mount -o remount,bind,ro / || exit 99;")], namespace=True
    ),
    "folder read-only": Where(
        [*NAMESPACE, *shell("mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} || exit 99;")],
        namespace=True,
    ),
    "folder deleted": Where(
        shell("mkdir -p {folder}/gone && cd {folder}/gone && rmdir {folder}/gone || exit 99;"), works=True
    ),
    "TMPDIR missing": Where(more={"TMPDIR": "{folder}/missing"}, works=True),
    "TMPDIR not writable": Where(user=NOBODY, more={"TMPDIR": "{folder}/closed"}, closed="closed", works=True),
    "ulimit -v": Where(shell("ulimit -v 300000;"), said="ulimit -v allows"),
    "less -v": Where(shell("ulimit -v 150000;"), said="ulimit -v allows"),
    "ulimit -n": Where(shell("ulimit -n 16;")),
    "ulimit -u": Where(shell("ulimit -u 3;"), user=NO_NAME),
    "ulimit -f": Where(shell("ulimit -f 4;")),
    "input closed": Where(shell("exec <&-;"), works=True),
    "errors closed": Where(shell("exec 2>&-;")),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that all users can reach, unlike pytest's folder."""
    path = Path(tempfile.mkdtemp(prefix="places-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def become(user: str) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []


def why_not(where: Where) -> str:
    if where.user:
        if os.geteuid() != 0:
            return "only root can become another user"
        probe = [*become(where.user), *COMMAND, "version"]
        completed = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=60, cwd="/")
        if completed.returncode:
            return f"user {where.user} cannot reach {Path(meshmark.__file__).parent}: {completed.stderr.strip()[-200:]}"
    if where.namespace:
        completed = subprocess.run(
            [*NAMESPACE, "sh", "-c", "mount --bind / /"], capture_output=True, text=True, check=False
        )
        if completed.returncode:
            return f"no file system can be mounted here: {completed.stderr.strip()}"
    return ""


def tried(folder: Path, where: Where, name: str) -> Ended:
    """Run one command in a place, with a separate home."""
    case_folder = folder / name.replace(" ", "-")
    (case_folder / "out").mkdir(parents=True)
    (case_folder / "spec.toml").write_text(SPEC)
    (case_folder / "sc.toml").write_text('[[program]]\nname = "one"\ncommand = ["true"]\n')
    write_results(case_folder / "in.jsonl")
    variables = {k: v.replace("{folder}", str(case_folder)) if v else v for k, v in where.more.items()}
    wrap = [w.replace("{folder}", str(case_folder)) for w in where.wrap]
    place = Place(case_folder, {"HOME": str(case_folder), **variables}, [*wrap, *become(where.user)])
    if where.closed:
        (case_folder / where.closed).mkdir(exist_ok=True)
    if where.user:
        for path in (case_folder, *case_folder.iterdir()):
            if path.name != where.closed:
                os.chown(path, int(where.user), int(where.user))
    if where.closed:
        (case_folder / where.closed).chmod(0o555)
    return place.run([w.format(here=case_folder, out=case_folder / "out") for w in COMMANDS[name]])


def wrong_with(where: Where, name: str, done: Ended) -> str:
    if done.status and where.said and where.said in done.err and "Traceback" not in done.err:
        return ""
    allowed = {1} if name in ABSENT else {0} if where.works else {0, 1, 2, 77}
    if name in ABSENT:
        allowed |= {2}
    if done.status not in allowed:
        return f"status {done.status}: {done.err[-500:]!r}"
    if done.status and not done.complaint and "2>&-" not in " ".join(where.wrap):
        return f"says {done.err[-500:]!r}"
    marker = next((x for x in ("Traceback", "unexpected ", "Exception ignored") if x in done.err + done.out), "")
    return f"{marker}: {done.err[-500:]!r}" if marker else ""


def faults(folder: Path, where: Where, names: Sequence[str]) -> tuple[Counter[int], list[str]]:
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda name: tried(folder, where, name), names))
    problems = [(name, wrong_with(where, name, completed)) for name, completed in zip(names, outcomes, strict=True)]
    return Counter(d.status for d in outcomes), [f"{name}: {reason}" for name, reason in problems if reason]


@pytest.mark.slow
@pytest.mark.parametrize("where", PLACES)
def test_a_command_where_it_is_not_welcome(folder: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := why_not(PLACES[where]):
        pytest.skip(reason)
    statuses, problems = faults(folder, PLACES[where], [*COMMANDS])
    with capsys.disabled():
        print(
            f"\n{where}: {statuses.total()} commands, statuses {dict(sorted(statuses.items()))}, {len(problems)} faults"
        )
        for failure in problems:
            print(f"  {failure[:600]}")
    assert not problems, "\n".join(problems)


def test_three_commands_with_few_descriptors(folder: Path) -> None:
    """This is one of the cases above, short enough for `make test`."""
    statuses, problems = faults(folder, PLACES["ulimit -n"], ["list", "measure --no-store", "store import"])
    assert not problems, "\n".join(problems)
    assert statuses.total() == 3
