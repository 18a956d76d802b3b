"""The processes that a container, control group, unit, job or pod names, and the command that limits them.

The trees are written here. The paths of their control groups follow the documentation and the source code of Docker,
Podman, nerdctl, the CRI, LXC, systemd and Slurm; they were not recorded on hosts that run these programs. The tests of
this machine are in the class `TestThisMachine`: they make control groups where the user may, and skip otherwise.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.explain.targets import Kind, Target, find_target, setting_command
from meshmark.machine.tree import FilesInMemory, FileTree
from support.waiting import until

A, B, C = "ab12" + "0" * 60, "ab13" + "1" * 60, "cd" * 32
UID = "3d6beaa3-0049-11ef-b68c-e073d73494b0"
OTHER_UID = "4e7cfbb4-0049-11ef-b68c-e073d73494b0"
STATIC_UID = "9" * 32
LAST_UID = "5" * 32
SYSTEMD_UID = UID.replace("-", "_")
UNIFIED = {"sys/fs/cgroup/cgroup.controllers": b"cpuset cpu memory\n"}
USER = "/user.slice/user-1000.slice/user@1000.service"

Tree = dict[str, bytes]


def process(
    pid: int, groups: str, parent: int = 1, name: str = "app", state: str = "S", numbers: str = "", **files: str
) -> Tree:
    """Return the files of a process; `groups` is its path in version 2, or the lines of its file `cgroup`."""
    lines = groups if ":" in groups.partition("/")[0] else f"0::{groups}\n"
    fields = f"{state} {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0"
    texts = {
        "cgroup": lines,
        "stat": f"{pid} ({name}) {fields}\n",
        "status": f"Name:\t{name}\nTgid:\t{pid}\nNSpid:\t{numbers or pid}\n",
        **files,
    }
    return {f"proc/{pid}/{file}": text.encode() for file, text in texts.items()}


def words(*arguments: str) -> str:
    """Return arguments or variables as /proc lists them."""
    return "".join(f"{argument}\0" for argument in arguments)


def group(path: str, *pids: int, controlled: bool = True, hierarchy: str = "") -> Tree:
    """Return the files of a control group in /sys/fs/cgroup."""
    folder = f"sys/fs/cgroup{hierarchy}{path}"
    files = {"cgroup.procs": "".join(f"{pid}\n" for pid in pids), "cgroup.subtree_control": "memory\n"}
    if controlled:
        files |= {"cpuset.cpus": "\n", "cpuset.mems": "\n"}
    return {f"{folder}/{file}": text.encode() for file, text in files.items()}


def find(kind: Kind, name: str, *trees: Tree) -> Target:
    host = process(1, "/init.scope", parent=0, name="systemd")
    return find_target(FilesInMemory({k: v for tree in (UNIFIED, host, *trees) for k, v in tree.items()}), kind, name)


def refusal(kind: Kind, name: str, *trees: Tree) -> MeshmarkError:
    with pytest.raises(MeshmarkError) as error:
        find(kind, name, *trees)
    assert "\n" not in str(error.value) and str(error.value).isprintable()
    return error.value


class TestContainers:
    @pytest.mark.parametrize(
        ("path", "manager", "command"),
        [
            (f"/docker/{A}", "docker", "docker update"),
            (f"/system.slice/docker-{A}.scope", "docker", "docker update"),
            (f"/system.slice/system.slice:docker:{A}", "docker", "docker update"),
            (f"/machine.slice/libpod-{A}.scope", "podman", "podman update"),
            (f"/libpod_parent/libpod-{A}", "podman", "podman update"),
            (f"{USER}/user.slice/libpod-{A}.scope/container", "podman", "podman update"),
            (f"/system.slice/web.service/libpod-payload-{A}", "podman", "podman update"),
            (f"/default/{A}", "containerd", "nerdctl update"),
            (f"/build/{A}", "", ""),
            (f"/system.slice/nerdctl-{A}.scope", "containerd", "nerdctl update"),
            (f"/k8s.io/{A}", "containerd", "nerdctl --namespace k8s.io update"),
            (f"/kubepods/burstable/pod{UID}/{A}", "kubernetes", "crictl update"),
            (f"/kubepods/pod{UID}/{A}", "kubernetes", "crictl update"),
            (f"/kubepods/besteffort/pod{UID}/crio-{A}", "cri-o", "crictl update"),
            (
                f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice/"
                f"cri-containerd-{A}.scope",
                "containerd",
                "crictl update",
            ),
            (f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/crio-{A}.scope", "cri-o", "crictl update"),
            (f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/docker-{A}.scope", "docker", "crictl update"),
            (
                f"/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{A}",
                "containerd",
                "crictl update",
            ),
        ],
    )
    def test_an_id_in_the_path_of_a_group_names_a_container(self, path: str, manager: str, command: str) -> None:
        tree = process(70, path, parent=60, numbers="70 1") | process(71, path, parent=70) | process(72, "/other")
        for name in (A, A[:12], "ab12"):
            target = find("container", name, tree)
            assert (target.processes, target.root, target.manager) == ((70, 71), 70, manager)
            assert target.identifier == A and target.name == A[:12] and target.groups[0].split("/container")[0] in path
        options = "--cpuset-cpus 0-15 --cpuset-mems 0"
        assert setting_command(target, "0-15", "0") == (f"{command} {options} {A}" if command else "")

    @pytest.mark.parametrize("path", ["/lxc.payload.web", "/lxc/web", "/lxc/web/ns", "/lxc.payload/web"])
    def test_lxc_names_its_containers_in_the_path(self, path: str) -> None:
        tree = process(70, path) | process(80, "/lxc.monitor.web", name="lxc-start")
        target = find("container", "web", tree)
        assert (target.processes, target.name, target.manager) == ((70,), "web", "lxc")
        assert setting_command(target, "0-3", "1") == (
            "lxc-cgroup -n web cpuset.cpus 0-3 && lxc-cgroup -n web cpuset.mems 1"
        )

    def test_nested_groups_and_nested_containers_belong_to_the_outer_one(self) -> None:
        outer = f"/system.slice/docker-{A}.scope"
        tree = (
            process(70, f"{outer}/init", numbers="70 1")
            | process(71, f"{outer}/docker/{C}", parent=66, numbers="71 9 1")
            | process(72, outer, parent=50, numbers="72 30")  # of `docker exec`
        )
        target = find("container", "ab12", tree)
        assert (target.processes, target.root, target.groups) == ((70, 71, 72), 70, (outer,))
        twice = process(70, f"/machine.slice/libpod-{A}.scope") | process(
            71, f"/machine.slice/libpod-{A}.scope/libpod-payload-{A}"
        )
        assert find("container", A, twice).groups == (f"/machine.slice/libpod-{A}.scope",)
        inner = find("container", C, tree)
        assert (inner.processes, inner.groups, inner.manager) == ((71,), (f"{outer}/docker/{C}",), "docker")

    def test_docker_tells_names_to_root(self) -> None:
        config = {f"var/lib/docker/containers/{A}/config.v2.json": json.dumps({"Name": "/web"}).encode()}
        broken = {f"var/lib/docker/containers/{B}/config.v2.json": b"[[["}
        tree = process(70, f"/docker/{A}") | process(71, f"/docker/{B}")
        assert find("container", "web", tree, config, broken).name == f"web ({A[:12]})"
        assert refusal("container", "wep", tree, config, broken).hint == "did you mean web?"
        error = refusal("container", "web", tree)
        assert f"running here: {A[:12]}, {B[:12]}" in str(error)
        assert "docker ps" in error.hint

    def test_conmon_tells_names_to_everybody(self) -> None:
        monitor = process(
            60,
            f"/machine.slice/libpod-conmon-{A}.scope",
            name="conmon",
            cmdline=words("/usr/bin/conmon", "-c", A, "-n", "db"),
        )
        tree = monitor | process(70, f"/machine.slice/libpod-{A}.scope/container", parent=60)
        target = find("container", "db", tree)
        assert (target.processes, target.name) == ((70,), f"db ({A[:12]})")  # without conmon

    def test_podman_without_an_id_in_the_path_is_found_by_conmon(self) -> None:
        arguments = words("/usr/bin/conmon", "-c", A, "-n", "db")
        service = "/system.slice/db.service"
        split = process(60, f"{service}/supervisor", name="conmon", cmdline=arguments)
        tree = split | process(70, f"{service}/container", parent=60) | process(71, f"{service}/container/a", parent=70)
        target = find("container", "db", tree)
        assert (target.processes, target.groups) == ((70, 71), (f"{service}/container",))
        same = process(60, service, name="conmon", cmdline=arguments) | process(70, service, parent=60)
        target = find("container", A[:6], same, process(71, service))
        assert (target.processes, target.root, target.groups) == ((70,), 70, ())
        assert setting_command(target, "0", "0") == f"podman update --cpuset-cpus 0 --cpuset-mems 0 {A}"

    def test_nerdctl_and_shims_name_containers_of_containerd(self) -> None:
        store = {"var/lib/nerdctl/1935db59/names/default/cache": A.encode()}
        assert find("container", "cache", process(70, f"/default/{A}"), store).processes == (70,)
        shim = process(
            50,
            "/x",
            name="containerd-shim",
            cmdline=words("containerd-shim-runc-v2", "-namespace", "test", "-id", "job 1"),
        )
        target = find("container", "job 1", shim, process(70, "/test/job 1/inner"), group("/test/job 1", 70))
        assert (target.processes, target.manager) == ((70,), "containerd")
        assert "sudo tee '/sys/fs/cgroup/test/job 1/cpuset.mems'" in setting_command(target, "0", "1")
        moby = process(50, "/x", name="containerd-shim", cmdline=words("shim", "-namespace", "moby", "-id", A))
        assert find("container", A, moby, process(70, f"/batch/{A}")).manager == "docker"
        renamed = process(50, "/x", name="containerd-shim", cmdline=words("shim", "-namespace", "own", "-id", A))
        assert find("container", A, renamed, process(70, f"/docker/{A}")).manager == "docker"

    def test_an_ambiguous_prefix_or_name_lists_the_containers(self) -> None:
        tree = process(70, f"/docker/{A}") | process(71, f"/docker/{B}")
        assert f"{A[:12]}, {B[:12]}" in str(refusal("container", "ab1" + "2"[:0], tree))
        names = {f"var/lib/docker/containers/{i}/config.v2.json": json.dumps({"Name": "/web"}).encode() for i in (A, B)}
        error = refusal("container", "web", tree, names)
        assert isinstance(error, UsageError) and f"web ({A[:12]}), web ({B[:12]})" in str(error)
        assert find("container", "ab13", tree, names).processes == (71,)

    def test_build_steps_and_monitors_are_not_containers(self) -> None:
        tree = process(70, "/system.slice/system.slice:docker:jvifp9a6b1lxa1kuw8bwfcovf") | process(
            71, f"/kubepods.slice/crio-conmon-{A}.scope"
        )
        assert "nothing of this kind runs here" in str(refusal("container", A, tree))


class TestPods:
    PODS = (
        process(
            70,
            f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{A}.scope",
            environ=words("HOSTNAME=web-0"),
        )
        | {"proc/70/root/run/secrets/kubernetes.io/serviceaccount/namespace": b"shop"}
        | process(71, f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{B}.scope")
        | process(72, f"/kubepods/burstable/pod{OTHER_UID}/{C}", environ=words("POD_NAME=web-1", "POD_NAMESPACE=shop"))
        | process(73, f"/kubepods/burstable/pod{STATIC_UID}/{'e' * 64}", environ=words("HOSTNAME=node7"))
        | process(74, f"/kubepods/burstable/pod{LAST_UID}/{'f' * 64}", **{"root/etc/hostname": "host7"})
        | {"proc/sys/kernel/hostname": b"node7\n", "etc/hostname": b"host7\n"}
    )

    @pytest.mark.parametrize("name", [UID, SYSTEMD_UID, UID[:8], "web-0", "shop/web-0"])
    def test_a_pod_has_a_uid_and_perhaps_a_name(self, name: str) -> None:
        target = find("pod", name, self.PODS)
        assert (target.processes, target.name, target.identifier) == ((70, 71), "shop/web-0", UID)
        assert (target.root, target.manager) == (None, "kubernetes")
        command = setting_command(target, "0-3", "0")
        assert command.startswith("# ") and "cpuManagerPolicy: static" in command and "\n" not in command

    def test_a_pod_without_a_group_has_the_groups_of_its_containers(self) -> None:
        paths = [f"/system.slice/kubepods-pod{SYSTEMD_UID}.slice:cri-containerd:{i}" for i in (A, B)]
        target = find("pod", UID, process(70, paths[0]), process(71, paths[1]))
        assert (target.processes, list(target.groups)) == ((70, 71), paths)

    def test_pods_of_the_network_of_the_host_have_only_a_uid(self) -> None:
        assert find("pod", STATIC_UID, self.PODS).name == STATIC_UID
        assert find("pod", LAST_UID, self.PODS).name == LAST_UID
        error = refusal("pod", "node7", self.PODS)
        assert f"shop/web-0 ({UID})" in str(error) and STATIC_UID in str(error)
        assert refusal("pod", "web-2", {k: v for k, v in self.PODS.items() if "environ" not in k}).hint.startswith(
            "kubectl"
        )
        assert refusal("pod", "mine/web-0", self.PODS).hint == "did you mean shop/web-0?"

    def test_conmon_tells_the_names_of_pods(self) -> None:
        label = f"k8s_app_db-0_data_{UID}_0"
        conmon = process(60, "/x", name="conmon", cmdline=words("conmon", "-c", A, "-n", label))
        tree = conmon | process(70, f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/crio-{A}.scope")
        assert find("pod", "db-0", tree).name == "data/db-0"

    def test_a_host_name_may_be_a_shortened_or_hostile_name(self) -> None:
        path = f"/kubepods/pod{UID}/{A}"
        long = "a" * 70
        assert find("pod", long, process(70, path), {"proc/70/root/etc/hostname": long[:63].encode()}).processes == (
            70,
        )
        hostile = {"proc/70/root/etc/hostname": b"root:x:0:0\nuser:x"}
        assert "root:x" not in str(refusal("pod", "web", process(70, path), hostile))

    def test_pods_of_the_same_name_are_listed(self) -> None:
        tree = process(70, f"/kubepods/pod{UID}/{A}", environ=words("POD_NAME=db", "POD_NAMESPACE=a")) | process(
            71, f"/kubepods/pod{OTHER_UID}/{B}", environ=words("POD_NAME=db", "POD_NAMESPACE=b")
        )
        assert f"a/db ({UID}), b/db ({OTHER_UID})" in str(refusal("pod", "db", tree))
        assert find("pod", "b/db", tree).processes == (71,)


class TestUnits:
    @pytest.mark.parametrize(
        ("name", "path", "identifier"),
        [
            ("nginx", "/system.slice/nginx.service", "nginx.service"),
            ("nginx.service", "/system.slice/nginx.service/worker", "nginx.service"),
            ("run-r1.scope", "/system.slice/run-r1.scope", "run-r1.scope"),
            ("system.slice", "/system.slice/nginx.service", "system.slice"),
            (r"system-a\x2db.slice", r"/system.slice/system-a\x2db.slice/x.service", r"system-a\x2db.slice"),
            ("system-a-b", r"/system.slice/system-a\x2db.slice/x.service", r"system-a\x2db.slice"),
            ("cpu", "/system.slice/_cpu.service", "cpu.service"),
            ("user@1000", f"{USER}/app.slice/a.service", "user@1000.service"),
        ],
    )
    def test_a_component_of_the_path_is_a_unit(self, name: str, path: str, identifier: str) -> None:
        tree = process(70, path) | process(71, "/user.slice") | group("/system.slice") | group("/user.slice")
        target = find("unit", name, tree)
        assert (target.processes, target.identifier, target.manager) == ((70,), identifier, "systemd")
        unit = f"'{identifier}'" if "\\" in identifier else identifier
        assert setting_command(target, "0-15", "0") == (
            f"systemctl set-property --runtime {unit} AllowedCPUs=0-15 AllowedMemoryNodes=0"
        )

    def test_system_units_come_before_user_units_and_units_in_containers(self) -> None:
        nested = process(70, f"/docker/{A}/system.slice/nginx.service") | group(
            f"/docker/{A}/system.slice/nginx.service"
        )
        user = process(71, f"{USER}/app.slice/nginx.service")
        system = process(72, "/system.slice/nginx.service")
        assert find("unit", "nginx", nested, user, system).processes == (72,)
        target = find("unit", "nginx", nested, user)
        assert target.processes == (71,)
        assert setting_command(target, "1", "").startswith("systemctl --user set-property")
        target = find("unit", "nginx", nested)
        assert (target.processes, target.manager) == ((70,), "")
        assert "systemctl" not in setting_command(target, "1", "") and "sudo tee" in setting_command(target, "1", "")

    def test_units_of_several_users_are_listed_by_path(self) -> None:
        other = USER.replace("1000", "1001")
        tree = process(70, f"{USER}/app.slice/a.service") | process(71, f"{other}/app.slice/a.service")
        error = refusal("unit", "a", tree)
        assert f"{USER}/app.slice/a.service, {other}/app.slice/a.service" in str(error) and "--cgroup" in error.hint

    def test_version_1_limits_a_unit_only_if_it_is_in_the_cpuset_hierarchy(self) -> None:
        lines = "3:cpuset:/\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n"
        old = {"sys/fs/cgroup/cgroup.controllers": b""}
        tree = {k: v for k, v in (process(70, lines) | group("", hierarchy="/cpuset")).items() if k not in old}
        target = find_target(FilesInMemory(tree), "unit", "a")
        assert (target.processes, target.version, setting_command(target, "0", "0")) == ((70,), 1, "")

    def test_near_units_are_suggested(self) -> None:
        error = refusal("unit", "nginxx", process(70, "/system.slice/nginx.service"))
        assert error.hint == "did you mean nginx.service?" and "system.slice" in str(error)


class TestSlurmJobs:
    @pytest.mark.parametrize(
        "path",
        [
            "/slurm/uid_1000/job_7/step_{}/task_0",
            "/slurm_node3/uid_1000/job_7/step_{}/task_0",
            "/system.slice/slurmstepd.scope/job_7/step_{}/user/task_0",
            "/system.slice/node3_slurmstepd.scope/job_7/step_{}/user/task_0",
        ],
    )
    def test_a_job_has_steps(self, path: str) -> None:
        lines = f"4:memory:/\n3:cpuset:{path}\n" if "uid_" in path else f"0::{path}\n"
        daemon = f"/x/{path.format(0)}".replace("user/task_0", "slurm").removeprefix("/x/")
        tree = (
            process(
                60,
                lines.format(0).replace(path.format(0), daemon),
                name="slurmstepd",
                cmdline=words("slurmstepd: [7.0]"),
            )
            | process(70, lines.format(0), parent=60)
            | process(71, lines.format("batch"), parent=61)
            | process(72, lines.format(0).replace("job_7", "job_77"))
        )
        job = find("slurm-job", "7", tree)
        assert (job.processes, job.manager, len(job.groups)) == ((70, 71), "slurm", 1)
        assert find("slurm-job", "7.0", tree).processes == (70,)
        assert find("slurm-job", "7.batch", tree).processes == (71,)
        assert setting_command(job, "0-15", "0,1") == "srun --cpu-bind=mask_cpu:0xffff --mem-bind=mask_mem:0x3"
        assert setting_command(job, "", "1") == "srun --mem-bind=mask_mem:0x2"
        assert "running here: 7, 7.0, 7.batch, 77, 77.0" in str(refusal("slurm-job", "8", tree))

    def test_without_control_groups_the_daemon_of_a_step_tells_its_job(self) -> None:
        tree = (
            process(60, "/system.slice/slurmd.service", name="slurmstepd", cmdline=words("slurmstepd: [7.0]"))
            | process(70, "/system.slice/slurmd.service", parent=60)
            | process(71, "/system.slice/slurmd.service", parent=70)
            | process(61, "/system.slice/slurmd.service", name="slurmstepd", cmdline=words("slurmstepd: [8.0]"))
            | process(72, "/system.slice/slurmd.service", parent=61)
        )
        target = find("slurm-job", "7", tree)
        assert (target.processes, target.root, target.groups) == ((70, 71), 70, ())
        assert find("slurm-job", "8.0", tree).processes == (72,)
        idle = process(60, "/x", name="slurmstepd", cmdline=words("slurmstepd: [7.0]"))
        assert "nothing of this kind runs here" in str(refusal("slurm-job", "7", idle))

    @pytest.mark.parametrize(("name", "hint"), [("7_1", "squeue -h -o %A -j 7_1"), ("7+1", "squeue"), ("mine", "")])
    def test_a_job_is_a_number(self, name: str, hint: str) -> None:
        error = refusal("slurm-job", name, process(70, "/slurm/uid_1/job_7/step_0"))
        assert isinstance(error, UsageError) and hint in error.hint


class TestGroups:
    def test_a_group_is_named_by_its_path_in_either_form(self) -> None:
        tree = process(70, "/a b/c") | process(71, "/a b") | process(72, "/a bc") | group("/a b") | group("/a b/c")
        for name in ("/a b", "a b/", "/sys/fs/cgroup/a b"):
            target = find("cgroup", name, tree)
            assert (target.processes, target.groups, target.cpusets) == ((70, 71), ("/a b",), ("/sys/fs/cgroup/a b",))
        writes = [
            f"echo {numbers} | sudo tee '/sys/fs/cgroup/a b/cpuset.{file}'"
            for file, numbers in (("mems", "0"), ("cpus", "0-15"))
        ]
        assert setting_command(target, "0-15", "0") == " && ".join(writes)

    def test_the_controller_is_enabled_first_where_it_is_missing(self) -> None:
        root = {"sys/fs/cgroup/cgroup.subtree_control": b"cpuset memory\n"}
        tree = process(70, "/a/b") | group("/a", controlled=False) | group("/a/b", controlled=False) | root
        assert setting_command(find("cgroup", "/a/b", tree), "2", "") == (
            "echo +cpuset | sudo tee /sys/fs/cgroup/a/cgroup.subtree_control && "
            "echo 2 | sudo tee /sys/fs/cgroup/a/b/cpuset.cpus"
        )

    def test_version_1_narrows_the_innermost_group_first(self) -> None:
        lines = "4:memory:/other\n3:cpuset:/a/b\n"
        tree = process(70, lines) | group("/a", hierarchy="/cpuset") | group("/a/b", 70, hierarchy="/cpuset")
        tree |= process(71, "4:memory:/a\n3:cpuset:/\n")
        target = find_target(FilesInMemory(tree), "cgroup", "/a")
        folders = ("/sys/fs/cgroup/cpuset/a/b", "/sys/fs/cgroup/cpuset/a")
        assert (target.processes, target.version, target.cpusets) == ((70,), 1, folders)
        assert (
            setting_command(target, "3", "") == f"echo 3 | sudo tee {folders[0]}/cpuset.cpus {folders[1]}/cpuset.cpus"
        )
        tree |= {"sys/fs/cgroup/memory/a/cgroup.procs": b"71\n", "sys/fs/cgroup/memory/cgroup.procs": b""}
        assert find_target(FilesInMemory(tree), "cgroup", "/sys/fs/cgroup/memory/a").processes == (71,)

    def test_hybrid_hierarchies_are_searched_together(self) -> None:
        lines = (
            f"5:cpu,cpuacct:/docker/{A}\n3:cpuset:/docker/{A}\n1:name=systemd:/docker/{A}\n0::/system.slice/x.service\n"
        )
        tree = process(70, lines) | group(f"/docker/{A}", hierarchy="/cpuset")
        tree |= {"sys/fs/cgroup/unified/cgroup.controllers": b"\n"}
        assert find_target(FilesInMemory(tree), "container", A).cpusets == (f"/sys/fs/cgroup/cpuset/docker/{A}",)
        assert find_target(FilesInMemory(tree), "unit", "x").processes == (70,)

    def test_names_with_any_bytes_stay_one_printable_line(self) -> None:
        path = b"/a\x1b[31m\x85\xff'b"
        tree = process(70, "/x") | {"proc/70/cgroup": b"0::" + path + b"\n"}
        folder = os.fsdecode(b"sys/fs/cgroup" + path)
        tree |= {f"{folder}/cgroup.procs": b"70\n", f"{folder}/cpuset.cpus": b"\n"}
        target = find("cgroup", os.fsdecode(path), tree)
        command = setting_command(target, "1", "")
        assert target.processes == (70,) and command.isprintable()
        printed = subprocess.run(
            ["bash", "-c", command.replace("echo 1 | sudo tee", "printf %s")], stdout=-1, check=True
        )
        assert printed.stdout == b"/sys/fs/cgroup" + path + b"/cpuset.cpus"
        refusal("cgroup", "/b", tree)

    def test_the_manager_of_a_group_is_named(self) -> None:
        path = f"/system.slice/docker-{A}.scope"
        assert find("cgroup", path, process(70, path)).manager == "docker"
        assert find("cgroup", "/system.slice", process(70, path)).manager == "systemd"
        assert find("cgroup", "/mine", process(70, "/mine")).manager == ""

    @pytest.mark.parametrize("name", ["/", "", "/sys/fs/cgroup", "/a/../b", "a\nb", "a\0"])
    def test_impossible_paths_are_refused(self, name: str) -> None:
        assert isinstance(refusal("cgroup", name, process(70, "/a")), UsageError)

    def test_empty_and_missing_groups_are_told_apart(self) -> None:
        tree = process(70, "/nginx") | group("/empty")
        assert "has no process" in str(refusal("cgroup", "/empty", tree))
        error = refusal("cgroup", "/ngin", tree)
        assert error.hint == "did you mean /nginx?" and "running here: /init.scope, /nginx" in str(error)
        with pytest.raises(AbsentError, match="no hierarchy"):
            find_target(FilesInMemory(process(70, "/a")), "cgroup", "/b")

    def test_a_group_outside_of_the_namespace_cannot_be_limited(self) -> None:
        target = find("container", A, process(70, f"/../docker-{A}.scope"))
        assert (target.processes, target.cpusets) == ((70,), ())


class TestProcesses:
    def test_a_process_comes_with_its_descendants(self) -> None:
        tree = process(70, "/a") | process(71, "/b", parent=70) | process(72, "/b", parent=71) | process(73, "/a")
        tree |= process(74, "/a", parent=70, state="Z") | process(80, "/a", parent=81) | process(81, "/a", parent=80)
        target = find("process", "70", tree)
        assert (target.processes, target.root, target.groups, target.manager) == ((70, 71, 72), 70, (), "")
        assert setting_command(target, "0", "0") == ""
        assert find("process", "80", tree).processes == (80, 81)  # a loop, which Linux never shows

    @pytest.mark.parametrize("name", ["0", "-1", "1.5", "web", "٣", "9999999999", "7"])
    def test_other_numbers_are_refused(self, name: str) -> None:
        assert isinstance(refusal("process", name, process(70, "/a")), UsageError)

    def test_a_program_may_have_any_name(self) -> None:
        tree = process(70, "/a", name="x) R 1 (y") | process(71, "/a", parent=70, name="\x1b) Z")
        assert find("process", "70", tree).processes == (70, 71)


class TestVanishing:
    class Vanishing(FilesInMemory):
        """Files of processes that end after their control groups were read."""

        def data(self, name: str) -> bytes | None:
            return None if re.fullmatch("proc/7[1-9]/(?!cgroup).*", name) else super().data(name)

    def test_processes_that_end_meanwhile_are_left_out(self) -> None:
        tree = process(70, "/a") | process(71, "/a") | process(72, "/b") | process(73, "/a", state="Z")
        files = self.Vanishing(tree)
        assert find_target(files, "cgroup", "/a").processes == (70,)
        with pytest.raises(UsageError, match="have ended"):
            find_target(files, "cgroup", "/b")

    def test_a_removed_group_is_marked_as_deleted(self) -> None:
        assert find("cgroup", "/a", process(70, "/a (deleted)")).processes == (70,)


HIDING_MOUNTS: Tree = {"proc/self/mounts": b"proc /proc proc rw,hidepid=invisible 0 0\n"}
HIDDEN_GROUPS = group(f"/docker/{A}", 80, 81) | group("/docker") | group("/mine", 70, 80)


class TestHidden:
    def hidden(self, *trees: Tree) -> FilesInMemory:
        return FilesInMemory({k: v for tree in (UNIFIED, HIDDEN_GROUPS, *trees) for k, v in tree.items()})

    @pytest.mark.parametrize("kind_and_name", [("container", A), ("container", "ab12"), ("cgroup", "/mine")])
    def test_hidden_processes_are_reported(self, kind_and_name: tuple[Kind, str]) -> None:
        kind, name = kind_and_name
        with pytest.raises(AbsentError, match=r"hides (1 process|2 processes) of .* that other users run") as error:
            find_target(self.hidden(HIDING_MOUNTS, process(70, "/mine")), kind, name)
        assert error.value.hint == f"sudo meshmark placed --{kind} {name}"

    def test_processes_that_exist_and_cannot_be_read_are_hidden(self) -> None:
        tree = process(70, "/mine") | {"proc/80/attr": b"", "proc/81/attr": b""}
        with pytest.raises(AbsentError, match="2 processes"):
            find_target(self.hidden(tree), "container", A)
        with pytest.raises(AbsentError, match="process 80 belongs to another user"):
            find_target(self.hidden(tree), "process", "80")
        with pytest.raises(AbsentError, match="no visible process"):
            find_target(self.hidden(tree), "unit", "nginx")

    def test_a_process_that_may_be_hidden_is_not_called_missing(self) -> None:
        with pytest.raises(AbsentError, match="80, which is not visible") as error:
            find_target(self.hidden(HIDING_MOUNTS, process(70, "/mine")), "process", "80")
        assert error.value.hint == "sudo meshmark placed 80"

    def test_root_sees_everything(self) -> None:
        tree = HIDING_MOUNTS | process(1, "/init.scope") | process(70, "/mine")
        assert find_target(self.hidden(tree), "cgroup", "/mine").processes == (70,)

    def test_without_control_groups_only_a_process_can_be_named(self) -> None:
        tree = {k: v for k, v in process(70, "/a").items() if not k.endswith("cgroup")}
        with pytest.raises(AbsentError, match="cannot be read for any process"):
            find_target(FilesInMemory(tree), "unit", "a")
        assert find_target(FilesInMemory(tree), "process", "70").processes == (70,)


def test_lists_of_cpus_are_checked_and_may_be_empty() -> None:
    target = find("container", A, process(70, f"/docker/{A}"))
    assert setting_command(target, "3,0-1,2", "") == f"docker update --cpuset-cpus 0-3 {A}"
    assert setting_command(target, "", "") == ""
    for cpus in ("0; reboot", "3-1", "a"):
        with pytest.raises(MeshmarkError, match="list"):
            setting_command(target, cpus, "0")


class TestThisMachine:
    CPUSET = Path("/sys/fs/cgroup/cpuset")

    @pytest.fixture
    def sleeper(self) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(["sh", "-c", "sleep 600 & wait"]) as child:
            try:
                yield child
            finally:
                for pid in find_target(FileTree(Path("/")), "process", str(child.pid)).processes[::-1]:
                    os.kill(pid, 9)

    def test_a_process_and_its_child_are_found(self, sleeper: subprocess.Popen[bytes]) -> None:
        tree = FileTree(Path("/"))
        assert until(lambda: len(find_target(tree, "process", str(sleeper.pid)).processes) == 2)
        target = find_target(tree, "process", str(sleeper.pid))
        assert target.root == sleeper.pid == target.processes[0]

    def test_a_real_group_is_found_and_limited(self, sleeper: subprocess.Popen[bytes]) -> None:
        """Needs version 1 of control groups and root; the group has the name that Docker would give it."""
        if not os.access(self.CPUSET / "cpuset.sched_load_balance", os.W_OK):  # version 2 does not have this file
            pytest.skip("no control group of version 1 can be made here")
        outer = self.CPUSET / f"meshmark-targets-{os.getpid()}"
        folders = [outer, outer / "docker", outer / "docker" / A]
        try:
            for folder in folders:
                folder.mkdir()
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (folder / file).write_text((self.CPUSET / file).read_text())
            (folders[-1] / "cgroup.procs").write_text(str(sleeper.pid))
            self.check_group(folders[-1], sleeper.pid)
        finally:
            (self.CPUSET / "cgroup.procs").write_text(str(sleeper.pid))
            for folder in reversed(folders):
                if folder.exists():
                    folder.rmdir()

    def check_group(self, folder: Path, pid: int) -> None:
        tree = FileTree(Path("/"))
        path = f"/{folder.relative_to(self.CPUSET)}"
        names: list[tuple[Kind, str]] = [("container", A), ("cgroup", path), ("cgroup", str(folder))]
        for kind, name in names:
            target = find_target(tree, kind, name)
            assert pid in target.processes and target.version == 1
            assert target.groups == (path,) and target.cpusets == (str(folder),)
        first = (self.CPUSET / "cpuset.cpus").read_text().replace(",", "-").split("-")[0].strip()
        command = setting_command(find_target(tree, "cgroup", path), first, "").replace("sudo ", "")
        subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL)
        assert (folder / "cpuset.cpus").read_text().strip() == first
        assert os.sched_getaffinity(pid) == {int(first)}
