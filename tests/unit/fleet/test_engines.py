"""Engines: the output of their commands is parsed, and the jobs we submit are in the form that they accept."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, UsageError
from meshmark.fleet.actions import DrainEngine
from meshmark.fleet.engines import engine as common
from meshmark.fleet.engines.engine import Engine, EngineError, EngineNode, Job, JobWork, answer, last_words, own_name
from meshmark.fleet.engines.flux import Flux
from meshmark.fleet.engines.local import Local
from meshmark.fleet.engines.lsf import Lsf
from meshmark.fleet.engines.pbs import Pbs
from meshmark.fleet.engines.processes import Processes
from meshmark.fleet.engines.psij import PsijSite
from meshmark.fleet.engines.slurm import Slurm
from meshmark.fleet.engines.ssh import Ssh
from meshmark.fleet.site import Site, engine_of, load_site
from meshmark.values.node_names import is_node_name
from support.waiting import until

WORK = JobWork(Path("/fleet/bin/node"), Path("/fleet/plan"), Path("/fleet/in box"), Path("/fleet/logs"), 90.0)
Fake = Callable[..., Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return a function that creates a command, which prints a text and saves its arguments and its input in files."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name: str, text: str = "", status: int = 0, error: str = "") -> Path:
        (tmp_path / f"{name}.out").write_text(text)
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/{name}.args\n'
            f"[ -t 0 ] || cat > {tmp_path}/{name}.in\ncat {tmp_path}/{name}.out\necho '{error}' >&2\nexit {status}\n"
        )
        script.chmod(0o755)
        return tmp_path / name

    return make


def arguments(of: Path) -> list[str]:
    return of.with_name(f"{of.name}.args").read_text().splitlines()


def script(of: Path) -> str:
    return of.with_name(f"{of.name}.in").read_text()


def test_states_of_slurm(fake: Fake) -> None:
    lines = [
        "batch*|idle|n[1-2]|none",
        "batch*|idle~|n3|none",  # powered down, Slurm starts it
        "batch*|alloc|n4|none",
        "batch*|mix-|n5|none",
        "batch*|idle*|n6|Not responding",
        "batch*|drng|n7|bad DIMM | slot 3",
        "batch*|resv|n8|none",
        "empty|n/a||",
    ]
    sinfo = fake("sinfo", "\n".join(lines) + "\n")
    assert Slurm().nodes() == [
        EngineNode("n1", "idle"),
        EngineNode("n2", "idle"),
        EngineNode("n3", "off", "idle~: powered off"),
        EngineNode("n4", "busy", "alloc"),
        EngineNode("n5", "busy", "mix-"),
        EngineNode("n6", "out", "idle*: Not responding"),
        EngineNode("n7", "out", "drng: bad DIMM | slot 3"),
        EngineNode("n8", "out", "resv"),
    ]
    assert "--Node" not in arguments(sinfo)


def test_nodes_outside_the_default_partition_of_slurm_are_out(fake: Fake) -> None:
    fake("sinfo", "gpu|idle|n[2-3]|none\nbatch*|idle|n[1-2]|none\n")
    assert [(n.name, n.state) for n in Slurm().nodes()] == [("n1", "idle"), ("n2", "idle"), ("n3", "out")]
    assert "only in partition gpu" in Slurm().nodes()[2].why
    assert {n.state for n in Slurm("gpu").nodes()} == {"idle"}
    fake("sinfo", "gpu|idle|n[2-3]|none\nbatch|idle|n[1-2]|none\n")
    assert {n.state for n in Slurm().nodes()} == {"idle"}  # no partition is marked as the default


def test_a_job_of_slurm(fake: Fake) -> None:
    sbatch = fake("sbatch", "123;cluster\n")
    assert Slurm("batch", "hpc", ("--qos=health",)).submit("mm-1", ["n1", "n2", "n5"], WORK) == "123"
    words = arguments(sbatch)
    for word in ("--nodelist=n[1-2,5]", "--nodes=3", "--exclusive", "--time=3", "--partition=batch", "--qos=health"):
        assert word in words
    text = script(sbatch)
    assert text.startswith("#!/bin/sh\n") and "srun" in text and "$SLURMD_NODENAME" in text
    squeue = fake(
        "squeue",
        "123|mm-1|PENDING|Resources\n124|other|RUNNING|None\n125|mm-2|RUNNING|None\n126|mm-3|COMPLETING|None\n"
        "127|mm-4|CONFIGURING|None\n",
    )
    assert Slurm().jobs({"mm-1", "mm-2", "mm-3", "mm-4"}) == [
        Job("123", "mm-1", True, "Resources"),
        Job("125", "mm-2", False),
        Job("127", "mm-4", False, boots=True),
    ]
    assert "--me" in arguments(squeue)


@pytest.mark.parametrize(
    ("text", "longest_s"),
    [("10:00", 540), ("2:00:30", 7140), ("1-12:00:00", 36 * 3600 - 60), ("infinite", math.inf), ("n/a", math.inf)],
)
def test_how_long_a_partition_of_slurm_lets_jobs_run(fake: Fake, text: str, longest_s: float) -> None:
    sinfo = fake("sinfo", f"debug|5:00\nbatch*|{text}\n")
    assert Slurm().longest_s() == longest_s
    fake("sinfo", f"batch|{text}\n")
    assert Slurm("batch").longest_s() == longest_s and "--partition=batch" in arguments(sinfo)


def test_pbs(fake: Fake) -> None:
    nodes = {
        "n1": {"state": "free"},
        "n2": {"state": "free", "jobs": ["1.s"]},
        "n3": {"state": "job-exclusive", "jobs": ["2.s"]},
        "n4": {"state": "offline,job-busy", "comment": "bad fan"},
        "n5": {"state": "down"},
    }
    fake("pbsnodes", json.dumps({"nodes": nodes}))
    assert [(n.name, n.state) for n in Pbs().nodes()] == [
        ("n1", "idle"),
        ("n2", "busy"),
        ("n3", "busy"),
        ("n4", "out"),
        ("n5", "out"),
    ]
    assert Pbs().nodes()[3].why == "offline,job-busy: bad fan"
    qsub = fake("qsub", "7.server\n")
    assert Pbs("work").submit("mm-1", ["n1", "n5"], WORK) == "7.server"
    assert "select=1:host=n1+1:host=n5" in arguments(qsub) and "place=scatter:excl" in arguments(qsub)
    assert "pbsdsh" in script(qsub)
    jobs = {
        "7.server": {"Job_Name": "mm-1", "job_state": "Q", "comment": "Not enough nodes"},
        "8.server": {"Job_Name": "mm-2", "job_state": "R"},
        "9.server": {"Job_Name": "mm-3", "job_state": "F"},
        "10.server": {"Job_Name": "mm-3", "job_state": "E"},
    }
    fake("qstat", json.dumps({"Jobs": jobs}))
    assert Pbs().jobs({"mm-1", "mm-2", "mm-3"}) == [
        Job("7.server", "mm-1", True, "Not enough nodes"),
        Job("8.server", "mm-2", False),
    ]
    fake("qstat", "")  # without jobs
    assert Pbs().jobs({"mm-1"}) == []


@pytest.mark.parametrize("node", ["node-7", "node-7.cluster.example"])
@pytest.mark.parametrize("host", ["node-7", "node-7.example"])
def test_a_node_finds_its_name_among_those_of_the_job(fake: Fake, node: str, host: str) -> None:
    fake("hostname", f"{host}\n")
    words = ["sh", "-c", f"echo {own_name(['node-6', node, 'node-77'])}"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == node


@pytest.mark.parametrize(
    ("engine", "command", "text"),
    [(Pbs(), "qdel", "qdel: Job has finished 4.head"), (Lsf(), "bkill", "Job <4>: Job has already finished")],
)
def test_jobs_that_have_ended_need_not_be_cancelled(fake: Fake, engine: Engine, command: str, text: str) -> None:
    fake(command, status=35, error=text)
    engine.cancel(["4"])
    fake(command, status=159, error="Unauthorized Request")
    with pytest.raises(EngineError, match="Unauthorized Request"):
        engine.cancel(["4"])


def test_lsf(fake: Fake) -> None:
    hosts = [
        {"HOST_NAME": "n1", "STATUS": "ok", "NJOBS": "0"},
        {"HOST_NAME": "n2", "STATUS": "ok", "NJOBS": "4"},
        {"HOST_NAME": "n3", "STATUS": "closed_Full", "NJOBS": "64"},
        {"HOST_NAME": "n4", "STATUS": "closed_Adm", "NJOBS": "0"},
        {"HOST_NAME": "n5", "STATUS": "unavail", "NJOBS": "0"},
        {"HOST_NAME": "n6", "STATUS": "closed", "NJOBS": "16"},
        {"HOST_NAME": "n7", "STATUS": "closed", "NJOBS": "0"},
    ]
    fake("bhosts", json.dumps({"COMMAND": "bhosts", "HOSTS": 5, "RECORDS": hosts}))
    assert [n.state for n in Lsf().nodes()] == ["idle", "busy", "busy", "out", "out", "busy", "out"]
    bsub = fake("bsub", "Job <123> is submitted to queue <normal>.\n")
    assert Lsf("normal", "p1").submit("mm-1", ["n1", "n2"], WORK) == "123"
    words = arguments(bsub)
    assert words[words.index("-m") + 1] == "n1 n2" and "-x" in words and "span[ptile=1]" in words
    assert "blaunch -z 'n1 n2'" in script(bsub)
    jobs = [{"JOBID": "123", "JOB_NAME": "mm-1", "STAT": "PEND", "PEND_REASON": "Host is busy;"}]
    fake("bjobs", json.dumps({"COMMAND": "bjobs", "JOBS": 1, "RECORDS": jobs}))
    assert Lsf().jobs({"mm-1"}) == [Job("123", "mm-1", True, "Host is busy;")]


def test_flux(fake: Fake) -> None:
    command = fake("flux", "free n[1-3]\nallocated n[3-4]\ndown n[5-6]\n")
    command.write_text(f'#!/bin/sh\n[ "$2" = drain ] && echo "n6 bad fan" || cat {command}.out\n')
    assert Flux().nodes() == [
        EngineNode("n1", "idle"),
        EngineNode("n2", "idle"),
        EngineNode("n3", "busy", "allocated"),
        EngineNode("n4", "busy", "allocated"),
        EngineNode("n5", "out", "down"),
        EngineNode("n6", "out", "drained: bad fan"),
    ]
    flux = fake("flux", "f123\n")
    assert Flux("debug").submit("mm-1", ["n1", "n2"], WORK) == "f123"
    assert "--requires=host:n[1-2]" in arguments(flux) and "--queue=debug" in arguments(flux)
    assert arguments(flux)[0] == "submit" and "--ntasks=2" in arguments(flux)
    assert Flux().submit("mm-2", ["n1", "n2"], replace(WORK, script="#!/bin/sh\nflux run true\n")) == "f123"
    assert arguments(flux)[0] == "batch" and script(flux) == "#!/bin/sh\nflux run true\n"
    assert not [word for word in arguments(flux) if word.startswith(("--ntasks", "--queue"))]
    fake("flux", "f123 mm-1 S\nf124 mm-2 R\n")
    assert [(j.id, j.waits) for j in Flux().jobs({"mm-1", "mm-2"})] == [("f123", True), ("f124", False)]


@pytest.mark.parametrize(
    ("engine", "command", "words"),
    [
        (Slurm(), "scontrol", ["update", "NodeName=n1", "State=DRAIN", "Reason=meshmark: 30% worse"]),
        (Pbs(), "pbsnodes", ["-C", "meshmark: 30% worse", "-o", "n1"]),
        (Lsf(), "badmin", ["hclose", "-C", "meshmark: 30% worse", "n1"]),
        (Flux(), "flux", ["resource", "drain", "n1", "meshmark: 30% worse"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nodes_are_drained_with_a_reason(fake: Fake, engine: DrainEngine, command: str, words: list[str]) -> None:
    program = fake(command)
    engine.drain("n1", "meshmark: 30% worse")
    assert arguments(program) == words


@pytest.mark.parametrize(
    ("state", "expected", "word"),
    [
        ("idle", "idle", ""),
        ("idle~", "off", "powered off"),
        ("idle#", "busy", "powering up"),
        ("idle%", "busy", "powering down"),
        ("idle!", "busy", "about to be powered off"),
        ("idle-", "busy", "idle-"),
        ("mix~", "busy", "powered off"),
        ("down~", "out", "powered off"),
        ("idle*", "out", ""),
        ("idle$", "out", ""),
        ("idle@", "out", ""),
        ("idle^", "out", ""),
        ("drain~", "out", ""),
        ("pow_dn", "out", ""),
        ("inval", "out", ""),
    ],
)
def test_a_node_that_is_off_or_marked_is_not_idle(fake: Fake, state: str, expected: str, word: str) -> None:
    fake("sinfo", f"batch*|{state}|n1|none\n")
    (node,) = Slurm().nodes()
    assert node.state == expected
    assert word in node.why


def vnode(host: str, state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "resources_available": {"host": host, "ncpus": 8}, **more}


def test_the_vnodes_of_a_host_are_one_node_that_is_idle_when_all_are(fake: Fake) -> None:
    vnodes = {
        "n1[0]": vnode("n1", "free"),
        "n1[1]": vnode("n1", "free"),
        "n2[0]": vnode("n2", "free"),
        "n2[1]": vnode("n2", "job-exclusive", jobs=["7.head"]),
        "n3": vnode("n3", "free"),
        "n3[0]": vnode("n3", "down", comment="bad fan"),
        "n4[0]": {"state": "free"},
        "n4[1]": {"state": "free"},
    }
    fake("pbsnodes", json.dumps({"nodes": vnodes}))
    assert Pbs().nodes() == [
        EngineNode("n1", "idle"),
        EngineNode("n2", "busy", "job-exclusive"),
        EngineNode("n3", "out", "down: bad fan"),
        EngineNode("n4", "idle"),
    ]


def test_a_comment_that_spoils_the_json_of_pbs_is_read_from_the_plain_output(tmp_path: Path, fake: Fake) -> None:
    script = fake("pbsnodes")
    text = """
n1
     Mom = n1
     state = free
     resources_available.host = n1

n2
     state = offline
     resources_available.host = n2
     comment = /var/spool "full" = 100 %
"""
    document = '{"nodes": {"n2": {"state": "offline", "comment": "/var/spool "full""}}}'
    script.write_text(f"#!/bin/sh\ncase $* in\n*json*) echo '{document}';;\n*) cat <<'X'\n{text}\nX\nesac\n")
    assert Pbs().nodes() == [EngineNode("n1", "idle"), EngineNode("n2", "out", 'offline: /var/spool "full" = 100 %')]


def test_a_job_gets_all_cpus_of_a_host_with_several_vnodes(fake: Fake) -> None:
    vnodes = {"n1[0]": vnode("n1", "free"), "n1[1]": vnode("n1", "free"), "n2": vnode("n2", "free")}
    fake("pbsnodes", json.dumps({"nodes": vnodes}))
    qsub = fake("qsub", "7.server\n")
    engine = Pbs()
    engine.nodes()
    engine.submit("mm-1", ["n1", "n2"], WORK)
    assert "select=1:host=n1:ncpus=16+1:host=n2" in arguments(qsub) and "place=scatter:exclhost" in arguments(qsub)
    engine.submit("mm-2", ["n2"], WORK)
    assert "select=1:host=n2" in arguments(qsub) and "place=scatter:excl" in arguments(qsub)


def test_a_job_of_another_user_that_spoils_the_json_of_pbs_hides_no_job(fake: Fake) -> None:
    script = fake("qstat")
    text = """
Job Id: 7.server
    Job_Name = mm-1
    job_state = Q
    comment = Not Running: Insufficient amount of resource: host
    Variable_List = PBS_O_HOME=/home/a,
\tA=" = b

Job Id: 8.server
    Job_Name = mm-2
    job_state = R
"""
    script.write_text(
        f'#!/bin/sh\ncase $* in\n*json*) echo \'{{"Jobs": {{"6": "a"b"}}}}\';;\n*) cat <<\'X\'\n{text}\nX\nesac\n'
    )
    assert Pbs().jobs({"mm-1", "mm-2"}) == [
        Job("7.server", "mm-1", True, "Not Running: Insufficient amount of resource: host"),
        Job("8.server", "mm-2", False),
    ]


def test_line_breaks_and_tabs_in_a_comment_are_part_of_the_json_of_pbs(fake: Fake) -> None:
    fake("pbsnodes", '{"nodes": {"n1": {"state": "offline", "comment": "bad\n\tfan"}, "n2": {"state": "free"}}}')
    assert [node.state for node in Pbs().nodes()] == ["out", "idle"]


def test_a_host_that_lsf_lists_for_lost_jobs_is_no_node(fake: Fake) -> None:
    hosts = [{"HOST_NAME": name, "STATUS": "ok", "NJOBS": "0"} for name in ("n1", "lost_and_found")]
    fake("bhosts", json.dumps({"RECORDS": hosts}))
    assert [node.name for node in Lsf().nodes()] == ["n1"]


@pytest.mark.parametrize("name", ["a$(touch x)", "a;touch x", "-oProxyCommand=x", "../a", "a\nb", ""])
def test_a_name_that_no_node_may_have_is_out_and_changed(fake: Fake, name: str) -> None:
    fake("pbsnodes", json.dumps({"nodes": {name: vnode(name, "free"), "n1": vnode("n1", "free")}}))
    first, second = Pbs().nodes()
    assert first.state == "out" and is_node_name(first.name) and "name of a node" in first.why
    assert second == EngineNode("n1", "idle")


@pytest.mark.parametrize(
    ("engine", "command"),
    [(Slurm(), "sinfo"), (Pbs(), "pbsnodes"), (Lsf(), "bhosts"), (Flux(), "flux")],
    ids=["slurm", "pbs", "lsf", "flux"],
)
def test_errors_are_one_line_of_the_engine(fake: Fake, engine: Engine, command: str) -> None:
    fake(command, status=1, error="Unable to contact the controller")
    with pytest.raises(EngineError, match="^" + command + ": Unable to contact the controller$"):
        engine.nodes()


@pytest.mark.parametrize("engine", [Pbs(), Lsf()], ids=["pbs", "lsf"])
def test_answers_that_are_no_json_are_named(fake: Fake, engine: Engine) -> None:
    fake("pbsnodes", "not json")
    fake("bhosts", "not json")
    with pytest.raises(EngineError, match="did not print JSON"):
        engine.nodes()


def test_a_command_that_hangs_is_named(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "TIMEOUT_S", 0.05)
    script = tmp_path / "sinfo"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    with pytest.raises(EngineError, match=r"sinfo did not answer within 0\.05 s, 3 times"):
        answer([str(script)])


def test_the_reason_is_not_the_hint_for_help(fake: Fake) -> None:
    fake("sbatch", "sbatch: unrecognized option '--x'\nTry \"sbatch --help\" for more information", 1)
    with pytest.raises(EngineError, match=r"^sbatch: unrecognized option '--x'$"):
        answer(["sbatch"], tries=1)


def test_a_command_that_is_missing_is_absent() -> None:
    with pytest.raises(AbsentError, match="is not installed"):
        answer(["no-such-command-of-an-engine"])


def test_local_nodes_measure_one_after_the_other(tmp_path: Path) -> None:
    runner = tmp_path / "runner"
    runner.write_text('#!/bin/sh\necho "$@" >> "$3/order"\n')
    runner.chmod(0o755)
    engine = Local(["n1", "n2"])
    assert [n.name for n in engine.nodes()] == ["n1", "n2"]
    engine.submit("mm-1", ["n1", "n2"], JobWork(runner, tmp_path / "plan", tmp_path, tmp_path, 5.0))
    assert until(lambda: not engine.jobs({"mm-1"}))
    lines = (tmp_path / "order").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["n1", "n2"]


def test_ssh_starts_the_runner_on_each_node(fake: Fake, tmp_path: Path) -> None:
    fake("ssh")
    (tmp_path / "100%n logs").mkdir()
    engine = Ssh(["n1", "n2"], ("-oProxyCommand=nc %h 22", "-oBatchMode=no"))
    work = JobWork(Path("/fleet/node"), Path("/a plan"), Path("/100%n"), tmp_path / "100%n logs", 500.0, ("--once",))
    assert engine.submit("mm-1", ["n1", "n2"], work) == "mm-1"
    assert until(lambda: not engine.jobs({"mm-1"}))
    *options, last, node, command = arguments(tmp_path / "ssh")
    assert options[:2] == ["-oProxyCommand=nc %h 22", "-oBatchMode=no"]  # the options of the site come first
    assert "-oBatchMode=yes" in options and last == "--" and node in {"n1", "n2"}
    assert command == f"exec /fleet/node '/a plan' --out /100%n --once --name {node}"
    with pytest.raises(UsageError, match="ssh lists no nodes"):
        Ssh([])


def test_what_a_node_said_last_is_its_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_words(log, {"n1"}) == {}
    log.write_bytes(b"n1: first\nn1: No route to host\nn2:\nclush: n3: exited\nn11: other\n")
    assert last_words(log, {"n1", "n2", "n3"}) == {"n1": ["No route to host"]}


def test_processes_of_jobs_are_found_by_other_processes(tmp_path: Path) -> None:
    engine, other = Local(["n1"]), Local(["n1"])
    runner = tmp_path / "runner"
    runner.write_text("#!/bin/sh\nexec sleep 60\n")
    runner.chmod(0o755)
    engine.submit("mm-1", ["n1"], JobWork(runner, tmp_path, tmp_path, tmp_path, 5.0))
    # While the kernel starts a process, it does not show the environment of the process.
    assert until(lambda: [job.id for job in other.jobs({"mm-1", "mm-2"})] == ["mm-1"]) and not other.jobs({"mm-2"})
    other.cancel(["mm-1"])
    assert until(lambda: not engine.jobs({"mm-1"}))


def test_a_process_whose_environment_is_not_to_be_seen_is_still_a_job(tmp_path: Path) -> None:
    """The kernel shows no environment of a process that it is just starting."""
    processes = Processes()
    processes.start("mm-1", ["env", "-i", "sleep", "60"], tmp_path / "log")
    assert until(lambda: not Processes().jobs({"mm-1"}))
    (job,) = processes.jobs({"mm-1"})
    assert (job.id, job.name, job.waits) == ("mm-1", "mm-1", False) and not processes.jobs({"mm-2"})
    processes.cancel(["mm-1"])
    assert until(lambda: not processes.jobs({"mm-1"}))


@pytest.mark.parametrize(
    ("site", "nodes", "why"),
    [
        (PsijSite("slurm"), "", "nodes: found no node; allowed: a set such as"),
        (PsijSite("local"), "n[1-2]", "nodes: found 2; allowed for psij.executor local: this host"),
        (PsijSite("pbs"), "n1", "psij.pin: found ''; allowed for pbs: an attribute of its jobs"),
        (PsijSite("slurm", "slurm.nodelist"), "n1", "psij.pin: found 'slurm.nodelist'; allowed"),
    ],
)
def test_psij_needs_to_know_how_jobs_get_their_nodes(site: PsijSite, nodes: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        engine_of(Site(psij=site), "psij", nodes)


def test_a_site_names_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUX_URI", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_of(Site()).name == "local"
    assert engine_of(Site(), nodes="n[1-3]").name == "ssh"
    (tmp_path / "bhosts").touch(0o755)
    assert engine_of(Site(), nodes="n[1-3]").name == "lsf"
    assert engine_of(Site(), "pbs").name == "pbs"
    monkeypatch.setenv("FLUX_URI", "local:///run/flux")
    assert engine_of(Site()).name == "flux"
    with pytest.raises(UsageError, match="--engine: found 'slrum'"):
        engine_of(Site(), "slrum")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clusters = 'x'", "clusters: unknown key; did you mean cluster"),
        ("engine = 'slrum'", "engine: found 'slrum'; allowed: slurm, .*did you mean slurm"),
        ("cluster = '../x'", "cluster: found '../x'; allowed: a name"),
        ("max_jobs = 0", "max_jobs: found 0; allowed: an integer from 1"),
        ("[racks]\nr1 = 'n[1-'", "fleet.toml: racks.r1: found"),
        ("nodes = 'n[2-1]'", "fleet.toml: nodes: found"),
        ("[slurm]\npartition = 'x'", "slurm.partition: unknown key"),
        ("not toml", "fleet.toml: not TOML"),
    ],
)
def test_a_site_with_a_mistake_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        load_site(path)
