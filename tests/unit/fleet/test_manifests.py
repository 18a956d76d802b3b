"""Manifests for Kubernetes: they satisfy its schemas, and their commands start the runner."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from meshmark.fleet.campaigns.campaign import Campaign
from meshmark.fleet.folder import Fleet
from meshmark.fleet.plan import NodePlan
from support.cli import command
from support.made_application import SUM, write_sum

VERSIONS = ["1.28", "1.37"]
STEP = {"id": "01-peak", "argv": ["peak", "--threads", "1", "--budget", "100ms"], "limit_s": 30.0}


def manifests(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = command("fleet", "manifests", str(folder), "--image", "debian:12-slim", *words)
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def valid(found: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = found["items"]
    for item in items:
        for version in VERSIONS:
            kubernetes_validate.validate(item, version, strict=True)
    return items


def test_each_node_gets_a_job_that_is_valid(tmp_path: Path) -> None:
    completed = manifests(tmp_path, "--claim", "fleet", "--nodes", "n[1-3]")
    assert completed.returncode == 0, completed.stderr
    items = valid(json.loads(completed.stdout))
    assert [item["kind"] for item in items] == ["Job"] * 3
    spec = items[1]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "n2"}
    assert spec["volumes"] == [{"name": "fleet", "persistentVolumeClaim": {"claimName": "fleet"}}]
    fleet = Fleet(tmp_path)
    (name,) = fleet.campaigns()
    assert list(Campaign.load(fleet, name).nodes) == ["n1", "n2", "n3"]
    # The same command works on this host if the mount point of the volume is replaced by the folder.
    line = spec["containers"][0]["command"][2].replace("/fleet/", f"{tmp_path}/")
    words = line.split()
    assert Path(words[0]).is_file() and Path(words[1]).is_file() and words[-2:] == ["--name", '"$NODE"']
    assert spec["containers"][0]["env"] == [{"name": "NODE", "value": "n2"}]
    assert Path(words[words.index("--out") + 1]) == fleet.campaign(name) / "inbox"
    second_run = subprocess.run(
        command("fleet", "check", str(tmp_path), "--resume"), capture_output=True, text=True, timeout=120, check=False
    )
    assert (
        second_run.returncode == 2
        and "belongs to kubernetes" in second_run.stderr
        and "fleet ingest" in second_run.stderr
    )


def test_programs_of_the_image_run_in_an_empty_volume(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('scratch = "/local"\n', encoding="utf-8")
    spec = write_sum(tmp_path, SUM.replace("sh {source}/sum.sh", "sum"))
    completed = manifests(tmp_path, "--claim", "fleet", "--nodes", "n1", "--spec", str(spec))
    assert completed.returncode == 0, completed.stderr
    (item,) = valid(json.loads(completed.stdout))
    spec_of_pod = item["spec"]["template"]["spec"]
    (container,) = spec_of_pod["containers"]
    assert "--scratch /local" in container["command"][2]
    assert {"name": "scratch", "mountPath": "/local"} in container["volumeMounts"]
    assert {"name": "scratch", "emptyDir": {}} in spec_of_pod["volumes"]


def test_programs_in_folders_of_the_head_are_refused(tmp_path: Path) -> None:
    spec = write_sum(tmp_path)
    completed = manifests(tmp_path / "fleet", "--claim", "fleet", "--nodes", "n1", "--spec", str(spec))
    assert (
        completed.returncode == 2
        and "sum: application: found {source}; allowed on Kubernetes: programs of the" in completed.stderr
    )
    assert not Fleet(tmp_path).campaigns()


def test_a_daemon_checks_health(tmp_path: Path) -> None:
    plan = NodePlan("tiny", "check", False, 60.0, [STEP], {"cafe": []})
    (tmp_path / "health.json").write_bytes(plan.to_bytes())
    completed = manifests(
        tmp_path, "--host-path", "/shared", "--health", str(tmp_path / "health.json"), "--every", "10m"
    )
    assert completed.returncode == 0, completed.stderr
    (item,) = valid(json.loads(completed.stdout))
    assert item["kind"] == "DaemonSet"
    (container,) = item["spec"]["template"]["spec"]["containers"]
    assert (
        "--health --spread 300s; sleep 600" in container["command"][2] and '--name "$NODE"' in container["command"][2]
    )
    assert (tmp_path / "plans" / f"{plan.id}.json").is_file() and (tmp_path / "health").is_dir()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--nodes", "n1"], "--claim, --host-path: found neither; allowed: one of them"),
        (["--nodes", "n1", "--claim", "a", "--host-path", "/b"], "--claim, --host-path: found both"),
        (["--nodes", "n[", "--claim", "a"], "--nodes: found"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, words: list[str], wrong: str) -> None:
    completed = manifests(tmp_path, *words)
    assert completed.returncode == 2 and wrong in completed.stderr and "Traceback" not in completed.stderr
