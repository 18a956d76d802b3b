"""The settings of a site, in one file.

This file is fleet.toml:

cluster = "hawk"
engine = "slurm"                  # by default the first that is found, see `ENGINES`
nodes = "n[1-512]"                # by default all nodes that the engine knows
max_jobs = 20                     # largest number of our jobs that wait or run at once
max_nodes = 64                    # largest number of nodes in one job
topology = "topology.conf"        # the switches, see `fleet.topology`; by default the switches that Slurm knows
scratch = "/local"                # folder of each node in which programs of users run; by default $TMPDIR, or /tmp

[slurm]
queue = "batch"                   # a partition
options = ["--qos=health"]

[ssh]
options = ["-F", "/shared/ssh_config"]

[psij]
executor = "slurm"                # name of the executor in PSI/J
pin = "slurm.nodelist={node}"     # the attribute of a job that requests a node; known for slurm and lsf

[pairs]
mpi = "openmpi"                   # by default the first library that is found
srun = "pmix"                     # start ranks by srun with this kind of MPI, instead of by mpirun
options = ["--mca", "btl", "self,tcp"]

[racks]
r1 = "n[1-64]"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from meshmark.describe import KINDS
from meshmark.errors import UsageError, near, quoted
from meshmark.fleet.engines.engine import Engine
from meshmark.fleet.engines.flux import Flux
from meshmark.fleet.engines.local import Local
from meshmark.fleet.engines.lsf import Lsf
from meshmark.fleet.engines.pbs import Pbs
from meshmark.fleet.engines.psij import Psij, PsijSite
from meshmark.fleet.engines.slurm import Slurm
from meshmark.fleet.engines.ssh import Ssh
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import MAX_NODES, expand
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import LIST, PRINTABLE, Input, OneOf, checked, key_text

ENGINES: Final = ("slurm", "pbs", "lsf", "flux", "ssh", "psij", "local")
# The command whose presence indicates an engine. An instance of Flux may run in an allocation of another engine.
_COMMANDS: Final = {"slurm": "sinfo", "pbs": "pbsnodes", "lsf": "bhosts"}
_BATCH: Final[Mapping[str, type[Slurm | Pbs | Lsf | Flux]]] = {"slurm": Slurm, "pbs": Pbs, "lsf": Lsf, "flux": Flux}
_NAME: Final = "a name of at most 60 letters, digits, _ . -"
_SET: Final = "a set of nodes, such as n[1-16]"
_WORDS: Final = "a list of words"
Text = Annotated[str, Field(max_length=4096), PRINTABLE]  # a NUL could not be passed to a command
Words = Annotated[tuple[Text, ...], LIST, Field(max_length=100, description=_WORDS)]


@dataclass(frozen=True, slots=True)
class BatchSite(Input):
    """Settings of a batch system, see `engines.engine.Batch`."""

    queue: Text = ""
    account: Text = ""
    options: Words = ()


@dataclass(frozen=True, slots=True)
class SshSite(Input):
    """Settings of ssh.

    Attributes:
        options: Options of ssh that precede ours.
    """

    options: Words = ()


@dataclass(frozen=True, slots=True)
class PairSite(Input):
    """Settings of the measurement of messages between nodes.

    Attributes:
        mpi: The MPI library; "": the first library that is found.
        srun: The kind of MPI of srun, by which Slurm starts the ranks; "": the launcher of the library starts them.
        options: Options of the launcher.
    """

    mpi: Annotated[str, OneOf(("", *KINDS))] = ""
    srun: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]*$", description="a name that srun --mpi=list lists")] = ""
    options: Words = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Input):
    """The settings of a site."""

    cluster: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$", description=_NAME)] = "cluster"
    engine: Annotated[str, OneOf(("", *ENGINES))] = ""
    nodes: Annotated[str, Field(description=_SET)] = ""
    max_jobs: Annotated[int, Field(ge=1, le=10_000)] = 20
    max_nodes: Annotated[int, Field(ge=1, le=10_000)] = 64
    topology: Text = ""
    scratch: Annotated[str, Field(pattern=r"^(/.*)?$", description="an absolute path"), PRINTABLE] = ""
    pairs: PairSite = field(default_factory=PairSite)
    slurm: BatchSite = field(default_factory=BatchSite)
    pbs: BatchSite = field(default_factory=BatchSite)
    lsf: BatchSite = field(default_factory=BatchSite)
    flux: BatchSite = field(default_factory=BatchSite)
    ssh: SshSite = field(default_factory=SshSite)
    psij: PsijSite = field(default_factory=PsijSite)
    racks: dict[str, Annotated[str, Field(description=_SET)]] = field(default_factory=dict)


def load_site(path: Path) -> Site:
    """Return the site that a file describes; the default if the file does not exist.

    Raises:
        UsageError: The file is invalid, or names a file that does not exist; the message names the key, what was found
            and what is allowed.
    """
    if not path.exists() and not path.is_symlink():  # a dangling link is an error, not a missing file
        return Site()
    site = checked(Site, parse_toml(read_text(path), path.name), path.name)
    nodes_in_racks = 0
    for name, nodes in site.racks.items():
        field = f"{path.name}: racks.{key_text(name)}"
        nodes_in_racks += len(expand(nodes, field))
        if nodes_in_racks > MAX_NODES:
            raise UsageError(f"{field}: found {nodes_in_racks:,} nodes in racks so far; allowed: up to {MAX_NODES:,}")
    if site.nodes:
        expand(site.nodes, f"{path.name}: nodes")
    if site.topology and not os.path.isfile(path.parent / site.topology):  # noqa: PTH113 (raises for long names)
        raise UsageError(f"{path.name}: topology: found no file {key_text(site.topology)}")
    return site


def fleet_and_site(folder: Path, *, may_be_new: bool = False) -> tuple[Fleet, Site]:
    """Return the fleet of a folder, and its site. See `Fleet.check` and `load_site` for the errors."""
    fleet = Fleet(folder.absolute())
    fleet.check(may_be_new)
    return fleet, load_site(fleet.site)


def engine_of(site: Site, named: str = "", nodes: str = "") -> Engine:
    """Return the engine of a site: the named engine, the engine of the file, or else the first that is installed.

    Args:
        named: Name of the engine; "": the engine of the site.
        nodes: The set of nodes, for engines that do not know nodes.
    """
    import os
    import shutil

    kind = named or site.engine
    if not kind:
        installed = next((k for k, command in _COMMANDS.items() if shutil.which(command)), "")
        kind = "flux" if "FLUX_URI" in os.environ else installed or ("ssh" if nodes or site.nodes else "local")
    if kind in _BATCH:
        batch_site: BatchSite = getattr(site, kind)
        return _BATCH[kind](batch_site.queue, batch_site.account, batch_site.options)
    names = tuple(expand(nodes, "--nodes") if nodes else expand(site.nodes, "fleet.toml: nodes"))
    if kind == "ssh":
        return Ssh(names, site.ssh.options)
    if kind == "psij":
        return Psij(site.psij, names)
    if kind != "local":
        raise UsageError(f"--engine: found '{quoted(kind)}'; allowed: {', '.join(ENGINES)}", near(kind, ENGINES))
    return Local(names)
