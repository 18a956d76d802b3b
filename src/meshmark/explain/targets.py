"""Finds the processes that a user means by the name of a container, control group, unit, batch job or pod.

It reads files only, and starts no program of a manager. The how-to page `placed` lists what each name may be.
Sources: docker-update(1), podman-update(1), the command references of nerdctl and crictl, lxc-cgroup(1), systemctl(1),
systemd.resource-control(5), srun(1), the node reference of Kubernetes (CPU, memory and topology manager).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from meshmark.errors import AbsentError, UsageError, near, quoted
from meshmark.explain.container_names import (
    PodName,
    conmons,
    container_names,
    labelled_pods,
    pod_name,
    shims,
)
from meshmark.explain.group_names import GroupOwner, OwnerKind, group_owners, same_uid, unescaped
from meshmark.explain.process_table import ProcessTable, is_below
from meshmark.machine.activity import visible_process
from meshmark.machine.tree import Files, format_list, parse_list
from meshmark.values.units import counted

Kind = Literal["process", "container", "cgroup", "unit", "slurm-job", "pod"]

_FIELDS: Final[Mapping[Kind, str]] = {
    "process": "PID",
    "container": "--container",
    "cgroup": "--cgroup",
    "unit": "--unit",
    "slurm-job": "--slurm-job",
    "pod": "--pod",
}
_MAX_LISTED: Final = 8
_SHORT_ID: Final = 12  # digits of the ID of a container that `docker ps` prints
_SUFFIXES: Final = (".service", ".scope", ".slice", ".socket", ".mount", ".swap")


@dataclass(frozen=True, slots=True)
class Target:
    """The processes that a user named.

    Attributes:
        name: The name as the user gave it, or the full one: `NAME (short ID)` of a container, `NAMESPACE/NAME` of a
            pod.
        processes: All its processes in ascending order; for a process also its descendants.
        root: The process from which the others descend, for a container its init process; None without one.
        groups: Paths of its outermost control groups below the root of their hierarchy; empty for a process. A path
            may contain any character but a newline.
        manager: Program that made the group: "docker", "podman", "containerd", "cri-o", "kubernetes", "lxc", "systemd"
            or "slurm"; "" if it is unknown or there is no manager.
        identifier: What the commands of the manager call it: ID of a container, UID of a pod, name of a unit or job.
        version: Version of the control groups that limit CPUs and memory nodes.
        cpusets: Folders with `cpuset.cpus` that limit the target, in the order in which to narrow them. Version 1 has
            one for each nested group, and version 2 one for each group of the target. Empty if there are none, or if
            they are outside of the cgroup namespace of this process.
        without_cpuset: Folders above `cpusets` whose `cgroup.subtree_control` lacks the controller `cpuset`, the
            outermost first; version 2 needs it there.
    """

    kind: Kind
    name: str
    processes: tuple[int, ...] = ()
    root: int | None = None
    groups: tuple[str, ...] = ()
    manager: str = ""
    identifier: str = ""
    version: Literal[1, 2] = 2
    cpusets: tuple[str, ...] = ()
    without_cpuset: tuple[str, ...] = ()


def find_target(tree: Files, kind: Kind, name: str) -> Target:
    """Return the processes that a user named.

    Args:
        tree: The running system or a recording of its `proc` and `sys/fs/cgroup`.
        kind: What `name` is.
        name: The number of a process, the name or ID of a container (or at least 4 digits of the ID), the path of a
            control group, a systemd unit, a Slurm job (JOB or JOB.STEP), or a pod (NAME, NAMESPACE/NAME or UID).

    Raises:
        UsageError: Nothing matches, several things match, or the name has an impossible form.
        AbsentError: The processes or the control groups may not be inspected.
    """
    if not name or "\0" in name or "\n" in name:
        raise UsageError(f"{_FIELDS[kind]}: found {quoted(name)!r}; allowed: a name of one line")
    if kind == "process":
        return _process(tree, name)
    table = ProcessTable(tree)
    if not any(groups.paths for groups in table.groups.values()):
        raise AbsentError(
            f"{_FIELDS[kind]}: /proc/PID/cgroup cannot be read for any process, or lists no control groups",
            "name the process instead: meshmark placed PID",
        )
    finders: Mapping[Kind, Callable[[ProcessTable, str], Target]] = {
        "container": _container,
        "cgroup": _cgroup,
        "unit": _unit,
        "slurm-job": _slurm_job,
        "pod": _pod,
    }
    return finders[kind](table, name)


def _process(tree: Files, name: str) -> Target:
    if not re.fullmatch("[1-9][0-9]{0,8}", name, re.ASCII):
        raise UsageError(f"PID: found {quoted(name)!r}; allowed: the number of a process", "pgrep NAME prints numbers")
    pid = int(name)
    table = ProcessTable(tree)
    if not tree.exists(f"proc/{pid}") and table.hides:
        raise AbsentError(
            f"PID: found {pid}, which is not visible; this system hides processes of other users (hidepid)",
            f"sudo meshmark placed {pid}",
        )
    visible_process(tree, pid, "PID", f"meshmark placed {pid}")
    pids = table.running(table.descendants(pid))
    if pid not in pids:
        raise UsageError(f"PID: found {pid}, which has just ended; allowed: a process that runs")
    return Target("process", name, pids, pid, identifier=name)


def _container(table: ProcessTable, name: str) -> Target:
    containers = _containers(table)
    ungrouped = _ungrouped(table, containers)
    names = container_names(table, [*containers, *ungrouped])

    def described(identifier: str) -> str:
        short = identifier[:_SHORT_ID] if _is_id(identifier) else identifier
        return f"{names[identifier]} ({short})" if identifier in names else short

    every = [*containers, *ungrouped]
    matches = [identifier for identifier in every if name in {identifier, names.get(identifier)}]
    if not matches and re.fullmatch("[0-9a-f]{4,64}", name, re.I):
        matches = [i for i in every if _is_id(i) and i.startswith(name.lower())]
    if len(matches) > 1:
        raise _several("container", name, map(described, matches), "give more digits of the ID")
    if not matches:
        managers = {o.manager for i, owners in containers.items() if i not in names for o in owners if _is_id(i)}
        _refuse_hidden(
            table, "container", name, lambda owner: owner.identifier == name or _is_prefix(name, owner.identifier)
        )
        allowed = "a name, or at least 4 digits of an ID"
        raise _nothing("container", name, allowed, map(described, every), _id_hint(managers))
    identifier = matches[0]
    if identifier in ungrouped:
        init = ungrouped[identifier]
        pids = table.running(table.descendants(init))
        return Target("container", described(identifier), pids, init, manager="podman", identifier=identifier)
    owners = containers[identifier]
    manager = next((owner.manager for owner in owners if owner.manager), "")
    target = Target("container", described(identifier), manager=manager, identifier=identifier)
    return _grouped(table, target, (owner.path for owner in owners))


def _containers(table: ProcessTable) -> dict[str, list[GroupOwner]]:
    """Return the control groups of containers by ID or name of the container."""
    containers = _owned(table, "container")
    for shim in shims(table):
        owners = containers.get(shim.container, [])
        manager = "docker" if shim.label == "moby" else "containerd"
        if owners:
            containers[shim.container] = [replace(o, manager=o.manager or manager) for o in owners]
            continue
        group = f"/{shim.label}/{shim.container}"  # of containerd's program ctr, where an ID may be any word
        if shim.label and group in table.inhabited:
            containers[shim.container] = [GroupOwner("container", manager, shim.container, group)]
    for conmon in conmons(table):
        init = table.only_child(conmon.pid)
        path, outer = (table.main_path(pid) if pid is not None else "" for pid in (init, conmon.pid))
        if conmon.container not in containers and path not in {"", outer}:
            containers[conmon.container] = [GroupOwner("container", "podman", conmon.container, path)]
    return containers


def _ungrouped(table: ProcessTable, containers: Collection[str]) -> dict[str, int]:
    """Return the init processes of the containers of Podman that have no control group (`--cgroups=disabled`)."""
    inits = {conmon.container: table.only_child(conmon.pid) for conmon in conmons(table)}
    return {identifier: init for identifier, init in inits.items() if init and identifier not in containers}


def _cgroup(table: ProcessTable, name: str) -> Target:
    parts = [part for part in name.split("/") if part]
    hierarchy = ""
    if parts[:3] == ["sys", "fs", "cgroup"]:
        parts = parts[3:]
        if parts and f"sys/fs/cgroup/{parts[0]}" in table.hierarchies:
            hierarchy = parts.pop(0)
    path = "/" + "/".join(parts)
    if not parts or ".." in parts:
        raise UsageError(
            f"--cgroup: found {quoted(name)!r}; allowed: the path of a group below the root of its hierarchy",
            "the third field of /proc/PID/cgroup is such a path",
        )
    paths = table.paths_in(hierarchy)
    if not hierarchy and any(is_below(p, {path}) for p in table.paths_in("cpuset")):
        paths = table.paths_in("cpuset")
    if not any(is_below(p, {path}) for p in paths):
        _refuse_hidden(table, "cgroup", name, lambda owner: False, path)
        if not table.hierarchies:
            raise AbsentError("--cgroup: /sys/fs/cgroup has no hierarchy of control groups", "mount it, see cgroups(7)")
        if any(table.tree.exists(h + path) for h in table.hierarchies):
            raise UsageError(f"--cgroup: found {quoted(path)!r}, which has no process; allowed: a group with processes")
        raise _nothing("cgroup", path, "a group with processes", sorted(set(paths) - {"/"}))
    owner = next((o for o in group_owners(path) if o.path == path), None)
    pids = {pid for p, members in paths.items() if is_below(p, {path}) for pid in members}
    target = Target("cgroup", name, manager=owner.manager if owner else "", identifier=path)
    return _grouped(table, target, [path], pids)


def _unit(table: ProcessTable, name: str) -> Target:
    units = [owner for owners in _owned(table, "unit").values() for owner in owners]
    requested = [name] if name.endswith(_SUFFIXES) else [name + suffix for suffix in _SUFFIXES]
    for unit in requested:
        for reach in ("system", "user", "nested"):
            owners = [o for o in units if o.reach == reach and unit in {o.identifier, unescaped(o.identifier)}]
            paths = list(dict.fromkeys(owner.path for owner in owners))
            if len(paths) > 1:
                raise _several("unit", name, paths, "name one of them: --cgroup PATH")
            if owners:
                first = owners[0].identifier
                return _grouped(table, Target("unit", first, manager=owners[0].manager, identifier=first), paths)
    _refuse_hidden(table, "unit", name, lambda o: not {o.identifier, unescaped(o.identifier)}.isdisjoint(requested))
    known = sorted({owner.identifier for owner in units if owner.reach != "nested"})
    raise _nothing("unit", name, "a unit with processes", known, "systemctl list-units prints the units")


def _slurm_job(table: ProcessTable, name: str) -> Target:
    if not re.fullmatch(r"[1-9][0-9]{0,9}(\.[0-9a-z]+)?", name, re.ASCII):
        raise UsageError(
            f"--slurm-job: found {quoted(name)!r}; allowed: JOB or JOB.STEP, where JOB is a number",
            f"squeue -h -o %A -j {name} prints the number of each job"
            if re.fullmatch("[0-9]+[_+][0-9]+", name, re.ASCII)
            else "",
        )
    jobs = _owned(table, "slurm-job")
    steps = _step_daemons(table)
    if name in jobs:
        daemons = {pid for pids in steps.values() for pid in pids}
        paths = {owner.path for owner in jobs[name]}
        target = Target("slurm-job", name, manager="slurm", identifier=name)
        return _grouped(table, target, paths, table.members(paths) - daemons)
    daemons = {pid for step, pids in steps.items() if name in {step, step.split(".")[0]} for pid in pids}
    pids = {pid for daemon in daemons for pid in table.descendants(daemon)} - daemons
    if running := table.running(pids):
        return Target("slurm-job", name, running, table.root_of(running), manager="slurm", identifier=name)
    _refuse_hidden(table, "slurm-job", name, lambda owner: owner.identifier == name)
    active = {step for step, pids in steps.items() if any(table.running(table.descendants(p) - {p}) for p in pids)}
    known = sorted({*jobs, *active}, key=lambda step: [int(step.partition(".")[0]), len(step), step])
    hint = "squeue -w localhost prints the jobs of this node"
    raise _nothing("slurm-job", name, "a job with processes on this node", known, hint)


def _step_daemons(table: ProcessTable) -> dict[str, list[int]]:
    """Return the daemons of the steps of Slurm by `JOB.STEP`; their command line is `slurmstepd: [JOB.STEP]`."""
    steps: dict[str, list[int]] = {}
    for pid in table.named("slurmstepd"):
        match = re.match(r"slurmstepd: \[([0-9]+\.[0-9a-z]+)", " ".join(table.arguments(pid)))
        if match:
            steps.setdefault(match[1], []).append(pid)
    return steps


def _pod(table: ProcessTable, name: str) -> Target:
    pods = _owned(table, "pod")
    matches = [uid for uid in pods if same_uid(uid, name)]
    if not matches and re.fullmatch("[0-9a-f][0-9a-f_-]{3,35}", name):
        matches = [uid for uid in pods if re.sub("[-_]", "", uid).startswith(re.sub("[-_]", "", name))]
    names = _names_of_pods(table, pods if len(matches) != 1 else matches)
    matches = [uid for uid, pod in names.items() if pod.matches(name)] or matches

    def described(uid: str) -> str:
        return f"{names[uid]} ({uid})" if names[uid].name else uid

    if len(matches) > 1:
        raise _several("pod", name, map(described, matches), "give the UID")
    if not matches:
        _refuse_hidden(table, "pod", name, lambda owner: same_uid(owner.identifier, name))
        hint = f"kubectl get pod {shlex.quote(name)} -o jsonpath={{.metadata.uid}} prints its UID"
        raise _nothing("pod", name, "NAME, NAMESPACE/NAME or UID", map(described, pods), hint)
    uid = matches[0]
    target = Target("pod", str(names[uid]) if names[uid].name else uid, manager="kubernetes", identifier=uid)
    return _grouped(table, target, (owner.path for owner in pods[uid]))


def _names_of_pods(table: ProcessTable, uids: Collection[str]) -> dict[str, PodName]:
    members: dict[str, list[int]] = {uid: [] for uid in uids}
    containers: set[str] = set()
    for path, pids in table.paths.items():
        owners = group_owners(path)
        for uid in {owner.identifier for owner in owners if owner.kind == "pod"} & members.keys():
            members[uid] += pids
            containers.update(owner.identifier for owner in owners if owner.kind == "container")
    labels = labelled_pods(container_names(table, containers).values())
    return {uid: labels.get(uid) or pod_name(table, sorted(set(pids))[:_MAX_LISTED]) for uid, pids in members.items()}


def _owned(table: ProcessTable, kind: OwnerKind) -> dict[str, list[GroupOwner]]:
    """Return the control groups of owners of a kind by identifier; each group is listed once."""
    owned: dict[str, dict[str, GroupOwner]] = {}
    for path in table.paths:
        for owner in group_owners(path):
            if owner.kind == kind:
                owned.setdefault(owner.identifier, {})[owner.path] = owner
    return {identifier: list(owners.values()) for identifier, owners in owned.items()}


def _grouped(table: ProcessTable, target: Target, paths: Iterable[str], pids: Collection[int] | None = None) -> Target:
    """Return a target with its control groups, and with their members as processes unless `pids` names them."""
    every = tuple(dict.fromkeys(paths))
    groups = tuple(path for path in every if not is_below(path.rpartition("/")[0], set(every)))
    if hidden := table.hidden_members(groups):
        raise _hidden(target.kind, target.name, len(hidden))
    running = table.running(table.members(set(groups)) if pids is None else pids)
    if not running:
        field, name = _FIELDS[target.kind], quoted(target.name)
        raise UsageError(f"{field}: found {name!r}, whose processes have ended; allowed: one that runs")
    limits = table.cpusets(groups)
    return replace(
        target,
        processes=running,
        root=table.root_of(running),
        groups=groups,
        version=limits.version,
        cpusets=limits.cpusets,
        without_cpuset=limits.without_cpuset,
    )


def _owner(target: Target) -> GroupOwner | None:
    """Return the owner of a target's first control group."""
    owners = group_owners(target.groups[0]) if target.groups else ()
    return next((owner for owner in reversed(owners) if owner.identifier == target.identifier), None)


def _is_id(identifier: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", identifier) is not None


def _is_prefix(name: str, identifier: str) -> bool:
    return _is_id(identifier) and re.fullmatch("[0-9a-f]{4,64}", name) is not None and identifier.startswith(name)


def _refuse_hidden(
    table: ProcessTable, kind: Kind, name: str, matches: Callable[[GroupOwner], bool], group: str = ""
) -> None:
    """Raise AbsentError if nothing matched because this user may not see the processes of others."""
    if not table.hides:
        return
    paths = table.listed_paths()
    groups = {owner.path for path in paths for owner in group_owners(path) if owner.kind == kind and matches(owner)}
    if group in paths:
        groups.add(group)
    hidden = table.hidden_members(groups)
    if hidden:
        raise _hidden(kind, name, len(hidden))
    raise AbsentError(
        f"{_FIELDS[kind]}: found {quoted(name)!r}, to which no visible process belongs; this system hides processes of "
        "other users (hidepid)",
        _as_root(kind, name),
    )


def _hidden(kind: Kind, name: str, count: int) -> AbsentError:
    processes = f"{counted(count, 'process', 'processes')} of {quoted(name)!r}"
    return AbsentError(
        f"{_FIELDS[kind]}: this system hides {processes} that other users run (hidepid)", _as_root(kind, name)
    )


def _as_root(kind: Kind, name: str) -> str:
    return f"sudo meshmark placed {_FIELDS[kind]} {quoted(shlex.quote(name))}"


def _several(kind: Kind, name: str, matches: Iterable[str], hint: str) -> UsageError:
    listed = [quoted(match) for match in matches]
    return UsageError(
        f"{_FIELDS[kind]}: found {quoted(name)!r}, which names {len(listed)} of them: {_some(listed)}; allowed: one",
        hint,
    )


def _nothing(kind: Kind, name: str, allowed: str, known: Iterable[str], hint: str = "") -> UsageError:
    """Return the error for a name that nothing has; it lists the nearest names that exist."""
    listed = [quoted(one) for one in known]
    suggestion = near(name, {one.split(" (")[0] for one in listed})
    existing = f"; running here: {_some(listed)}" if listed else "; nothing of this kind runs here"
    return UsageError(
        f"{_FIELDS[kind]}: found {quoted(name)!r}, which matches nothing that runs here; allowed: {allowed}{existing}",
        suggestion or hint,
    )


def _some(names: list[str]) -> str:
    rest = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _id_hint(managers: Collection[str]) -> str:
    """Return how to get the ID of a container whose name the files do not tell."""
    commands = {"docker": "docker ps", "podman": "podman ps", "containerd": "nerdctl ps"}
    lists = sorted({commands.get(manager, "crictl ps") for manager in managers})
    return (
        f"the files that this user may read do not name some containers; give the ID that {' or '.join(lists)} prints"
        if lists
        else ""
    )


def setting_command(target: Target, cpus: str, nodes: str) -> str:
    """Return the command that limits a target to CPUs and memory nodes from now on.

    Args:
        target: What to limit.
        cpus: CPUs as a list such as `0-15`; "" to leave them.
        nodes: Memory nodes as a list; "" to leave them.

    Returns:
        One line. For a pod it is a comment that starts with `#`, because the kubelet selects the CPUs itself. For a
        job of Slurm it applies to the next step. "" if only commands for single processes, such as taskset, have this
        effect: for a process, and for a target without a control group that limits CPUs.

    Raises:
        MachineError: `cpus` or `nodes` is not such a list.
    """
    cpu_numbers, node_numbers = parse_list(cpus), parse_list(nodes)
    lists = [format_list(numbers) if numbers else "" for numbers in (cpu_numbers, node_numbers)]
    if not any(lists) or target.kind == "process":
        return ""
    owner = _owner(target)
    if target.kind == "pod":
        return (
            "# The kubelet selects the CPUs of a pod and overwrites other settings. In its configuration: "
            "cpuManagerPolicy: static, memoryManagerPolicy: Static (with reservedMemory), topologyManagerPolicy: "
            "single-numa-node; in the pod: limits equal to requests, with a whole number of CPUs"
        )
    if target.kind == "slurm-job":
        masks = [f"{sum(1 << n for n in numbers):#x}" for numbers in (cpu_numbers, node_numbers)]
        return " ".join(["srun", *_options(lists, ("--cpu-bind=mask_cpu:", "--mem-bind=mask_mem:"), masks)])
    if target.kind == "unit" and owner is not None and owner.reach != "nested" and target.version == 2:
        user = ["--user"] if owner.reach == "user" else []
        words = ["systemctl", *user, "set-property", "--runtime", shlex.quote(target.identifier)]
        return " ".join([*words, *_options(lists, ("AllowedCPUs=", "AllowedMemoryNodes="))])
    if target.kind == "container":
        options = _options(lists, ("--cpuset-cpus ", "--cpuset-mems "))
        if words := _update_words(target, owner):
            return " ".join([*words, *options, shlex.quote(target.identifier)])
        if target.manager == "lxc":
            settings = _options(lists, ("cpuset.cpus ", "cpuset.mems "))
            return " && ".join(f"lxc-cgroup -n {shlex.quote(target.identifier)} {setting}" for setting in settings)
    return _writes(target, lists)


def _options(lists: list[str], names: tuple[str, str], values: list[str] | None = None) -> list[str]:
    """Return the options for the lists that are not empty."""
    return [name + value for name, value, numbers in zip(names, values or lists, lists, strict=True) if numbers]


def _update_words(target: Target, owner: GroupOwner | None) -> list[str]:
    """Return the command, without its options, that limits a running container; empty if its manager has none."""
    outer = group_owners(owner.path) if owner else ()
    if target.manager == "cri-o" or any(o.kind == "pod" for o in outer):
        return ["crictl", "update"]
    if target.manager in {"docker", "podman"}:
        return [target.manager, "update"]
    if target.manager == "containerd" and re.fullmatch("[0-9a-f]{64}", target.identifier):
        parts = owner.path.split("/") if owner else []
        namespace = parts[-2] if len(parts) == 3 and parts[-1] == target.identifier else "default"
        return ["nerdctl", *(["--namespace", shlex.quote(namespace)] if namespace != "default" else []), "update"]
    return []


def _writes(target: Target, lists: list[str]) -> str:
    """Return the writes to the files of control groups, nodes first, because version 1 needs both to add a process."""
    steps = [f"echo +cpuset | sudo tee {_shell_word(f + '/cgroup.subtree_control')}" for f in target.without_cpuset]
    for file, numbers in reversed([("cpuset.cpus", lists[0]), ("cpuset.mems", lists[1])]):
        if numbers and target.cpusets:
            files = " ".join(_shell_word(f"{folder}/{file}") for folder in target.cpusets)
            steps.append(f"echo {numbers} | sudo tee {files}")
    return " && ".join(steps) if target.cpusets else ""


def _shell_word(text: str) -> str:
    """Return a word for a shell, without characters that a terminal would interpret."""
    if text.isprintable():
        return shlex.quote(text)
    data = text.encode("utf-8", "surrogateescape")
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in data) + "'"
