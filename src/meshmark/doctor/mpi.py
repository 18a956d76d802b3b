"""Traps of launchers and MPI libraries, each tried for real within seconds: what springs here, and what helps.

A trial runs a launcher as a user would, and where something goes wrong runs it again with the cure; what is said of it
is what was seen. Wrong numbers and wrong data are judged `spoils-measurements`, what does not run `hidden`, what could
not be tried `unknown`, and a trap that does not spring here `ok`, with what was seen.

Sources: open-mpi/ompi issue 11604 (memory hooks of UCX), mpirun(1) of Open MPI 4.1, MPICH's README.envvar; the defects
of windows and co-arrays were found by the verification of `pingpong` and `halo`, and by events that never came.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from meshmark.doctor.finding import Finding, Judged, in_order
from meshmark.measure import launch
from meshmark.measure.journal import Reading, read_journal
from meshmark.native import end_with_parent
from meshmark.store.record import Record

LIMIT_S: Final = 20.0  # of one trial; one that takes longer has shown its trap
_NAMES: Final = {"openmpi": "Open MPI", "mpich": "MPICH", "mpi": "MPI"}
_PACKAGES: Final = {
    ("openmpi", "apt-get"): "openmpi-bin libopenmpi-dev",
    ("openmpi", "dnf"): "openmpi openmpi-devel",
    ("openmpi", "zypper"): "openmpi4 openmpi4-devel",
    ("mpich", "apt-get"): "mpich libmpich-dev",
    ("mpich", "dnf"): "mpich mpich-devel",
    ("mpich", "zypper"): "mpich mpich-devel",
    ("caf-openmpi", "apt-get"): "gfortran libcoarrays-openmpi-dev",
    ("caf-mpich", "apt-get"): "gfortran libcoarrays-mpich-dev",
    ("shmem-openmpi", "apt-get"): "libopenmpi-dev",
}
_ROOT_VARIABLES: Final = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_CROWDED: Final = 3.0  # times as long as it should: beyond what noise makes of a crowded machine
_MESSAGE: Final = ("pingpong", "--protocol", "send", "--bytes", "8", "--budget", "500ms", "--interval", "10")
_NEAR_S: Final = 3e-6  # no network between two hosts answers sooner, and shared memory does


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one trial.

    Attributes:
        status: as a shell tells it; 128 and more where a signal ended it.
        over: it had no end within its time, and was ended.
    """

    status: int
    out: str
    talk: str
    over: bool = False

    @property
    def reading(self) -> Reading:
        """What its output says, where it is that of a program of Meshmark's."""
        return read_journal(self.out.encode().splitlines(keepends=True), "doctor")

    def results(self, metric: str) -> list[Record]:
        return [r for r in self.reading.records if r.metric == metric]

    def value(self, metric: str) -> float | None:
        """The first value of a metric, in its unit."""
        return next((r.value for r in self.results(metric)), None)

    @property
    def absent(self) -> str:
        """The first reason for which something was not to be had; '' where all was."""
        first = next((a.reason for a in self.reading.absences), "")
        return re.sub(r"^[a-z_]+ [^:]*: ", "", first)  # without the point that it was asked for

    @property
    def why(self) -> str:
        """What went wrong, in a few words; '' where nothing did."""
        if self.over:
            return f"no end within {LIMIT_S:.0f} s"
        if self.status == 0:
            return ""
        if error := self.reading.error:
            return error[:120]
        died = re.search(r"signal:? ?(?:number )?(\d+)|\(Segmentation fault\)|SIGSEGV", self.talk, re.I)
        number = int(died[1]) if died and died[1] else 11 if died else self.status - 128 if self.status > 128 else 0
        if 0 < number < signal.NSIG:
            return f"died of {launch.signal_name(number)}"
        said = [x.strip() for x in self.talk.splitlines() if re.search(r"[a-z]{3}", x)]
        return (said[0][:120] if said else "") or f"exit status {self.status}"


class Try(Protocol):
    """Runs a command within `LIMIT_S`, on these CPUs alone where some are named."""

    def __call__(
        self, words: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None
    ) -> Tried: ...


def try_for_real(words: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None) -> Tried:
    """As `Try`; nothing of what it started is left when it returns."""

    def prepare() -> None:
        end_with_parent()  # a launcher that is asked ends its ranks, and leaves nothing in the temporary folder
        if cpus:
            os.sched_setaffinity(0, cpus)

    try:
        child = subprocess.Popen(
            list(words),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=prepare,
        )
    except OSError as why:
        return Tried(127, "", f"{words[0]}: {why.strerror or why}")
    over = False
    try:
        out, talk = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        over = True
        out, talk = _ended(child)
    except BaseException:
        _ended(child)
        raise
    status = child.returncode
    return Tried(128 - status if status < 0 else status, out, talk, over)


def _ended(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends a trial with all that it started; what it had said."""
    child.terminate()  # a launcher that is asked ends its ranks, also those that are in groups of their own
    try:
        return child.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()


@dataclass(frozen=True, slots=True)
class Host:
    """What the trials are told of the machine; tests make others up."""

    cpus: tuple[int, ...]
    root: bool
    environment: Mapping[str, str]
    which: Callable[[str], str | None] = shutil.which
    shared: Path = Path("/dev/shm")  # where libraries put what their ranks share

    @staticmethod
    def here() -> Host:
        return Host(tuple(sorted(os.sched_getaffinity(0))), os.geteuid() == 0, dict(os.environ))

    def install(self, what: str) -> str:
        """The command that installs it; '' where this system's packages of it are not known."""
        for manager in ("apt-get", "dnf", "zypper"):
            if self.which(manager) and (packages := _PACKAGES.get((what, manager))):
                return f"{'' if self.root else 'sudo '}{manager} install {packages}   # then make setup"
        return ""


def examine(
    asked: str = "all",
    *,
    host: Host | None = None,
    attempt: Try = try_for_real,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """Every trap of the launchers asked for, the worst first.

    Args:
        asked: `openmpi`, `mpich`, `mpi` (any other), several with commas, or `all`.
        progress: told how many of the trials are done.

    Raises:
        UsageError: no such library. AbsentError: the one that was asked for is not here, or none is.
    """
    host = host or Host.here()
    kinds = launch.chosen(asked)
    found = [
        Finding(
            f"{_NAMES[kind]}: installed",
            "not here, or Meshmark was built without it",
            "hidden",
            "its figures cannot be had",
            host.install(kind),
        )
        for kind in ("openmpi", "mpich")
        if asked == "all" and kind not in kinds
    ]
    wards = [_Ward(launch.launcher(kind), host, attempt) for kind in kinds]
    trials = [trial for ward in wards for trial in ward.trials()]
    for done, trial in enumerate(trials):
        progress(done, len(trials))
        found += trial()
    progress(len(trials), len(trials))
    return in_order(found)


class _Ward:
    """The trials of one launcher."""

    def __init__(self, launcher: launch.Launcher, host: Host, attempt: Try) -> None:
        self.kind, self.launcher, self.host, self.attempt = launcher.kind, launcher, host, attempt
        self.name = _NAMES[self.kind]
        self.environment = launch.environment(self.kind)

    def trials(self) -> list[Callable[[], Iterator[Finding]]]:
        always = [self._as_root, self._crowded, self._bound, self._namespaces, self._left_behind]
        own = [self._finalize, self._one_sided] if self.kind == "openmpi" else []
        return [*always, *own, self._odd_windows, self._coarrays]

    # ---------------------------------------------------------------- words

    def _mpirun(self, ranks: int, words: Sequence[str], own: Sequence[str] = ()) -> Tried:
        """Ranks of Meshmark's program, started with these words of the launcher's and no others."""
        line = [str(self.launcher.path), "-n", str(ranks), *own, str(self.launcher.program), *words]
        return self.attempt(line, self.environment)

    def _cared_for(self, ranks: int, words: Sequence[str], **variables: str) -> Tried:
        """The same as `meshmark measure` starts them, with these variables in its environment."""
        line = launch.words(self.launcher, ranks, len(self.host.cpus))
        return self.attempt([*line, *words], {**self.environment, **variables})

    def _room(self) -> list[str]:
        """For two ranks also on one CPU."""
        few = len(self.host.cpus) < 2
        return ["--oversubscribe", "--bind-to", "none"] if few and self.kind == "openmpi" else []

    # ---------------------------------------------------------------- launchers

    def _as_root(self) -> Iterator[Finding]:
        name, why = f"{self.name}: started by root", "a launcher that refuses starts nothing in a container"
        if not self.host.root:
            yield Finding(name, "not root here", "ok", why)
            return
        said = [v for v in _ROOT_VARIABLES if v in self.host.environment]
        true = [str(self.launcher.path), "-n", "1", self.host.which("true") or "true"]
        plain = self.attempt(true, self.host.environment)
        if not plain.why:
            yield Finding(name, f"starts, told by {' and '.join(said)}" if said else "starts", "ok", why)
            return
        told = self.attempt(true, {**self.host.environment, **dict.fromkeys(_ROOT_VARIABLES, "1")})
        if told.why:
            yield Finding(name, f"does not start a program: {told.why}", "hidden", why)
        else:
            yield Finding(
                name,
                "refuses, unless it is told twice; Meshmark tells it",
                "hidden",
                why,
                f"export {' '.join(f'{v}=1' for v in _ROOT_VARIABLES)}",
            )

    def _crowded(self) -> Iterator[Finding]:
        name = f"{self.name}: more ranks than CPUs"
        why = "a rank that spins keeps the one it waits for from its CPU, and times are those of the scheduler"
        cpus = self.host.cpus[:2]
        ranks = 2 * len(cpus)
        # An exchange of small messages, each rank with its neighbours.
        words = ["halo", "--protocol", "irecv_isend", "--words", "8", "--budget", "500ms", "--interval", "10"]
        if self.kind == "openmpi":
            spinning = ["--oversubscribe", "--bind-to", "none"]
            yielding, setting = [*spinning, "--mca", "mpi_yield_when_idle", "1"], {}
            command = "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 …"
        else:
            spinning = yielding = []
            setting = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "16"}
            command = "export MPIR_CVAR_POLLS_BEFORE_YIELD=16"
        program = str(self.launcher.program)
        start = [str(self.launcher.path), "-n"]
        room = self._room() if len(cpus) < 2 else []
        alone = self.attempt([*start, str(max(2, len(cpus))), *room, program, *words], self.environment, cpus)
        bare = self.attempt([*start, str(ranks), *spinning, program, *words], self.environment, cpus)
        cured = self.attempt([*start, str(ranks), *yielding, program, *words], {**self.environment, **setting}, cpus)
        own, slow, quick = (t.value("exchange_time") for t in (alone, bare, cured))
        where = f"{ranks} ranks on {len(cpus)} CPUs" if len(cpus) > 1 else f"{ranks} ranks on one CPU"
        if quick is None:
            yield Finding(name, f"{where}: {cured.why or cured.absent or 'no result'}", "unknown", why)
            return
        beside = f", {_time(own)} with a CPU for each" if own is not None and len(cpus) > 1 else ""
        if slow is None:
            found = f"{where}: {bare.why or bare.absent or 'no result'}; {_time(quick)} an exchange when told to yield"
            yield Finding(name, found + beside, "spoils-measurements", why, command)
            return
        found = f"{where}: {_time(slow)} an exchange as started, {_time(quick)} when told to yield{beside}"
        helps = slow > _CROWDED * quick
        # A turn of each rank takes its time; beyond that it is the scheduler's, which yielding may not mend.
        lost = own is not None and len(cpus) > 1 and min(slow, quick) > _CROWDED * ranks * own
        judged: Judged = "spoils-measurements" if helps or lost else "ok"
        yield Finding(name, found, judged, why, command if helps else "")

    def _bound(self) -> Iterator[Finding]:
        name = f"{self.name}: two ranks on one CPU"
        why = "launchers bind without knowing of one another: ranks that share a CPU take turns of milliseconds"
        if len(self.host.cpus) < 2:
            yield Finding(name, "one CPU only", "ok", why)
            return
        look = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; sleep 0.5"]

        def job(ranks: int) -> Tried:
            return self.attempt([str(self.launcher.path), "-n", str(ranks), *look], self.environment)

        one = job(2)
        with ThreadPoolExecutor(2) as both:
            two = list(both.map(job, (1, 1)))
        inside = _allowed(one)
        between = [lists[0] for lists in map(_allowed, two) if lists]
        if len(inside) != 2 or len(between) != 2:
            wrong = next((t.why for t in (one, *two) if t.why), "what ranks said was not understood")
            yield Finding(name, wrong, "unknown", why)
            return
        command = {"openmpi": "mpirun --bind-to none …   # or --cpu-set LIST, another one for each job"}.get(
            self.kind, "mpiexec -bind-to none …   # or -bind-to user:LIST, another one for each job"
        )
        if inside[0] == inside[1] and inside[0].isdigit():
            found = f"both ranks of one job are bound to CPU {inside[0]}"
            yield Finding(name, found, "spoils-measurements", why, command)
        elif between[0] == between[1] and between[0].isdigit():
            found = f"two jobs at once are both bound to CPU {between[0]}, with {len(self.host.cpus)} there"
            yield Finding(name, found, "spoils-measurements", why, command)
        else:
            found = f"ranks of one job may use {' and '.join(inside)}, two jobs at once {' and '.join(between)}"
            yield Finding(name, found, "ok", why)

    def _namespaces(self) -> Iterator[Finding]:
        name = f"{self.name}: hosts that are one kernel"
        why = "between containers a library may take memory that real hosts do not share: figures of no network"
        if self.kind not in _NAMESPACE_WORDS:
            yield Finding(name, "how it starts ranks elsewhere is not known", "unknown", why)
            return
        plain = self._hosts(_MESSAGE)
        if forbidden := _forbidden(plain):
            yield Finding(name, forbidden, "unknown", why, self._more_rights)
            return
        seen = _transport(plain)
        if seen is None:
            yield Finding(name, f"two hosts in namespaces: {plain.why or 'no result'}", "unknown", why)
            return
        transport, latency_s = seen
        found = f"between two hosts in namespaces: {transport}, {_time(latency_s)} a message"
        if "shared memory" not in transport and latency_s > _NEAR_S:
            yield Finding(name, found, "ok", why)
            return
        words = _NAMESPACE_WORDS[self.kind]
        cured = _transport(self._hosts(_MESSAGE, words.cure, words.setting))
        if cured and "shared memory" not in cured[0]:
            found += f"; when told: {cured[0]}, {_time(cured[1])}"
            yield Finding(name, found, "spoils-measurements", why, words.command)
        else:
            yield Finding(name, found, "spoils-measurements", why)

    def _hosts(self, words: Sequence[str], more: Sequence[str] = (), setting: Mapping[str, str] | None = None) -> Tried:
        """Two ranks of Meshmark's program on two hosts that are namespaces of this kernel, and gone afterwards.

        Args:
            more: the launcher's, beside what it needs to reach the second host.
            setting: variables of the ranks.
        """
        unshare = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if not self.host.root:
            unshare += ["--user", "--map-root-user"]
        with tempfile.TemporaryDirectory(prefix="meshmark-hosts-") as folder:
            script, agent = Path(folder) / "hosts.sh", Path(folder) / "agent.sh"
            script.write_text(_HOSTS, encoding="utf-8")
            agent.touch(0o755)
            line = [
                *unshare,
                "sh",
                str(script),
                str(agent),
                str(self.launcher.path),
                *_NAMESPACE_WORDS[self.kind].start(str(agent)),
                *more,
                "-n",
                "2",
                str(self.launcher.program),
                *words,
            ]
            # In a namespace of users, who started it is root.
            return self.attempt(line, {**self.environment, **dict.fromkeys(_ROOT_VARIABLES, "1"), **(setting or {})})

    @property
    def _more_rights(self) -> str:
        return "" if self.host.root else "sudo meshmark doctor mpi"

    def _left_behind(self) -> Iterator[Finding]:
        name = f"{self.name}: shared memory of dead jobs"
        why = "a launcher that is killed removes nothing: what its ranks shared takes memory until the next boot"
        if self.kind not in _SHARED_FILES:
            yield Finding(name, "what it would leave is not known", "unknown", why)
            return
        left = _unused(self.host.shared, _SHARED_FILES[self.kind])
        if not left:
            yield Finding(name, f"none in {self.host.shared}", "ok", why)
            return
        mib = sum(taken for _, taken in left) / (1 << 20)
        found = (
            f"{len(left)} file{'s' if len(left) > 1 else ''} in {self.host.shared} that no process uses, {mib:.3g} MiB"
        )
        unused = {path for path, _ in left}
        jobs = {path: path.with_name(re.sub(r"\.\d+$", ".*", path.name)) for path in unused}
        # A word for all files of a job, unless others have such names too.
        words = {str(job if {*self.host.shared.glob(job.name)} <= unused else path) for path, job in jobs.items()}
        yield Finding(name, found, "spoils-measurements", why, f"rm {' '.join(sorted(words))}")

    # ---------------------------------------------------------------- libraries

    def _finalize(self) -> Iterator[Finding]:
        name = f"{self.name}: end of OpenSHMEM programs"
        why = "a program that dies in shmem_finalize has lost what it had not written, and its job has failed"
        words = ["halo", "--protocol", "shmem_put", "--words", "1", "--budget", "200ms", "--interval", "20"]
        bare = self._mpirun(2, words, self._room())
        if bare.absent and not bare.value("exchange_time"):
            yield Finding(
                name,
                f"absent: {bare.absent}",
                "hidden",
                "OpenSHMEM's figures cannot be had",
                self.host.install("shmem-openmpi"),
            )
            return
        if not bare.why:
            yield Finding(name, "ends well", "ok", why)
            return
        hooks = ["--mca", "opal_common_ucx_opal_mem_hooks", "0"]
        cured = self._mpirun(2, words, [*self._room(), *hooks])
        if cured.why:
            yield Finding(name, f"{bare.why}; without UCX's memory hooks: {cured.why}", "hidden", why)
        else:
            found = f"{bare.why} after its results; ends well without UCX's memory hooks, and so Meshmark starts it"
            yield Finding(name, found, "hidden", why, f"oshrun {' '.join(hooks)} …")

    def _one_sided(self) -> Iterator[Finding]:
        name = f"{self.name}: windows over TCP"
        why = "between hosts without a fabric MPI_Win_allocate may fail, and with it every one-sided program"
        words = ["halo", "--protocol", "rma_fence", "--words", "1", "--budget", "200ms", "--interval", "20"]
        tcp, osc = _NAMESPACE_WORDS[self.kind].cure, ["--mca", "osc", "rdma,sm,pt2pt"]
        bare = self._hosts(words, tcp)
        if forbidden := _forbidden(bare):
            yield Finding(name, forbidden, "unknown", why, self._more_rights)
            return
        if bare.value("exchange_time") is not None:
            yield Finding(name, "can be made between two hosts in namespaces", "ok", why)
            return
        wrong = bare.absent or bare.why or "no result"
        cured = self._hosts(words, [*tcp, *osc])
        if cured.value("exchange_time") is None:
            yield Finding(name, f"{wrong}; with {osc[-1]}: {cured.absent or cured.why or 'no result'}", "hidden", why)
        else:
            yield Finding(
                name, f"{wrong}; can be made with another component", "hidden", why, f"mpirun {' '.join(osc)} …"
            )

    def _odd_windows(self) -> Iterator[Finding]:
        name = f"{self.name}: windows of odd sizes"
        why = "one-sided data beside their place: wrong results, and no error"
        tried = self._cared_for(2, ["defects", "--trial", "window", "--words", "1..65536"])
        results = tried.results("wrong_words")
        if not results:
            yield Finding(name, tried.why or tried.absent or "no result", "unknown", why)
            return
        wrong = [r.conditions for r in results if r.value > 0]
        odd = [c for c in wrong if int(str(c["window_bytes"])) % 16]
        if not wrong:
            most = max(int(str(r.conditions["words"])) for r in results)
            found = f"{len(results)} messages of up to {most} words arrived whole"
            if tried.why:
                yield Finding(name, f"{found}, then {tried.why}", "unknown", why)
            else:
                yield Finding(name, found, "ok", why)
            return
        first = min(wrong, key=lambda c: int(str(c["words"])))
        beside = int(str(first.get("shifted_bytes", 0)))
        shift = f", {beside:+} bytes beside their place" if beside else ""
        ways = " and ".join(sorted({str(c["protocol"]) for c in wrong}))
        words = f"{first['words']} word{'s' if first['words'] != 1 else ''}"
        found = (
            f"{ways} go wrong from {words} in a window of {first['window_bytes']} bytes on{shift} "
            f"({len(wrong)} of {len(results)} messages, {len(wrong) - len(odd)} in windows of a multiple of 16 bytes)"
        )
        in_program = (
            "" if len(odd) < len(wrong) else "in the program: round sizes of windows up to a multiple of 16 bytes"
        )
        yield Finding(name, found, "spoils-measurements", why, self._cure(["--trial", "window"], in_program))

    def _cure(self, trial: Sequence[str], in_program: str) -> str:
        """What helps against words that go astray: a variable, where it was seen to help, and what programs can do."""
        if self.kind != "mpich":
            return in_program
        tried = self._cared_for(2, ["defects", *trial], MPIR_CVAR_NOLOCAL="1")  # as if no rank were on the same host
        results = tried.results("wrong_words")
        if tried.status or not results or any(r.value for r in results):
            return in_program
        return "export MPIR_CVAR_NOLOCAL=1   # slower: through no shared memory" + (in_program and f"; or {in_program}")

    def _coarrays(self) -> Iterator[Finding]:
        name = f"{self.name}: co-arrays"
        why = "no error tells that x[j] = v or an event did not arrive; who waits for a lost event waits for ever"
        trial = ["--trial", "caf_scalar,caf_element,caf_event"]
        tried = self._cared_for(2, ["defects", *trial])
        results = tried.results("wrong_words")
        if not results or tried.why:
            if tried.absent:
                yield Finding(
                    name,
                    f"absent: {tried.absent}",
                    "hidden",
                    "figures of co-arrays cannot be had",
                    self.host.install(f"caf-{self.kind}"),
                )
            else:
                yield Finding(name, tried.why or "no result", "unknown", why)
            return
        kinds = {"caf_scalar": "scalar puts", "caf_element": "puts of elements", "caf_event": "posts of events"}
        counts: dict[str, list[int]] = {}  # lost, sent
        for r in results:
            count = counts.setdefault(kinds[str(r.conditions["trial"])], [0, 0])
            count[0] += int(r.value)
            count[1] += int(str(r.conditions["sent_words"]))
        wrong = [r for r in results if r.value]
        if not wrong:
            sent = ", ".join(f"{count[1]} {told}" for told, count in counts.items())
            sizes = len({r.conditions["window_bytes"] for r in results})
            yield Finding(name, f"{sent} arrived, on co-arrays of {sizes} sizes", "ok", why)
            return
        lost = ", ".join(f"{count[0]} of {count[1]} {told}" for told, count in counts.items())
        where = in_program = ""
        if all(int(str(r.conditions["window_bytes"])) % 16 for r in wrong):
            where = "; none where an image's part is a multiple of 16 bytes"
            in_program = "in the program: of every co-array a multiple of 16 bytes on an image, as 2 words or 4 events"
        yield Finding(
            name,
            f"lost or beside their place: {lost}{where}",
            "spoils-measurements",
            why,
            self._cure(trial, in_program),
        )


# By the names that the libraries give them; only such as a shell takes as they are.
_SHARED_FILES: Final = {
    "openmpi": re.compile(r"(?:vader_segment|sm_segment|osc_rdma|osc_sm)\.[\w.-]+"),
    "mpich": re.compile(r"mpich_shar_tmp\w+"),
}


def _unused(folder: Path, names: re.Pattern[str]) -> list[tuple[Path, int]]:
    """Files with such names that nobody maps or holds open, and the memory that they take in bytes.

    Only those whose users this process may see, and none that is younger than a minute: a job may be about to start.
    """
    me, old = os.geteuid(), time.time() - 60
    found: dict[str, tuple[Path, int]] = {}
    for path in sorted(p for p in folder.glob("*") if names.fullmatch(p.name)):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and me in {0, about.st_uid} and about.st_mtime < old:
                found[path.name] = path, 512 * about.st_blocks
    for process in Path("/proc").glob("[0-9]*") if found else ():
        used = _used(process)
        found = {name: each for name, each in found.items() if name not in used}
    return list(found.values())


def _used(process: Path) -> str:
    """The names of what a process maps or holds open; '' of one that ended, or is another user's."""
    names = ""
    with contextlib.suppress(OSError):
        names = (process / "maps").read_text(encoding="utf-8", errors="replace")
        for each in process.glob("fd/*"):
            with contextlib.suppress(FileNotFoundError):
                names += f"{each.readlink()}\n"
    return names


def _time(value_s: float) -> str:
    """A time for people."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value_s >= factor:
            return f"{value_s / factor:.3g} {unit}"
    return f"{value_s / 1e-9:.3g} ns"


def _allowed(tried: Tried) -> list[str]:
    """The CPUs of each rank as the kernel lists them."""
    return sorted(re.findall(r"Cpus_allowed_list:\s*([\d,-]+)", tried.out))


def _forbidden(tried: Tried) -> str:
    """Why no hosts could be made of namespaces; '' where they were."""
    if tried.status != _NO_NAMESPACES and not re.search(r"^unshare: ", tried.talk, re.M) and tried.status != 127:
        return ""
    said = tried.talk.strip().splitlines()
    return f"namespaces may not be made here: {said[-1] if said else 'no word'}"


def _transport(tried: Tried) -> tuple[str, float] | None:
    """What carried messages between hosts, as the kernel's counters of networks tell, and the latency in s."""
    for r in tried.results("message_latency"):
        return str(r.conditions.get("transport", "")), r.value
    return None


# ------------------------------------------------------------------ hosts that are namespaces


@dataclass(frozen=True, slots=True)
class _Words:
    """How a launcher reaches a second host through an agent, and what keeps its library to the network."""

    start: Callable[[str], Sequence[str]]
    cure: Sequence[str]
    setting: Mapping[str, str]
    command: str


_NEAR_HOST, _FAR_HOST, _NO_NAMESPACES = "10.77.0.1", "10.77.0.2", 97
_NAMESPACE_WORDS: Final = {
    "openmpi": _Words(
        lambda agent: [
            "--mca",
            "plm_rsh_agent",
            agent,
            "-H",
            f"{_NEAR_HOST}:1,{_FAR_HOST}:1",
            "--bind-to",
            "none",
            "--mca",
            "oob_tcp_if_include",
            "mesh0",
        ],
        ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self"),
        {},
        "mpirun --mca pml ob1 --mca btl tcp,self …",
    ),
    "mpich": _Words(
        lambda agent: [
            "-launcher",
            "rsh",
            "-launcher-exec",
            agent,
            "-iface",
            "mesh0",
            "-hosts",
            f"{_NEAR_HOST}:1,{_FAR_HOST}:1",
        ],
        (),
        {"UCX_TLS": "tcp,self"},
        "export UCX_TLS=tcp,self",
    ),
}
# This shell is the near host, in namespaces of its own; when it ends, all of them end with it.
_HOSTS: Final = f"""\
agent=$1; shift
fail() {{ echo "$1" >&2; exit {_NO_NAMESPACES}; }}
ip link set lo up || fail 'no loopback'
hostname near || fail 'no host name'
# Of its own namespace, since libraries look there for interfaces.
mount -t sysfs sysfs /sys || fail 'no /sys'
unshare --net --uts --mount sh -c 'mount -t sysfs sysfs /sys; exec sleep 60' & far=$!
tries=0
while [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do
  tries=$((tries + 1)); [ $tries -lt 300 ] || fail 'no second namespace'; sleep 0.01
done
ip link add mesh0 type veth peer name mesh1 || fail 'no pair of interfaces'
ip link set mesh1 netns $far name mesh0 || fail 'no interface elsewhere'
ip addr add {_NEAR_HOST}/24 dev mesh0 && ip link set mesh0 up || fail 'no address'
nsenter -t $far -n -u -m sh -c 'hostname far; ip link set lo up; ip addr add {_FAR_HOST}/24 dev mesh0; \
ip link set mesh0 up' || fail 'no address elsewhere'
printf '#!/bin/sh\\nshift\\nexec nsenter -t %s -n -u -m sh -c "$*"\\n' $far > "$agent"
"$@"
status=$?
kill $far
exit $status
"""
