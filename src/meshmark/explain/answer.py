"""A verdict as JSON (docs/reference/placed.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from meshmark.applications.effects.profile import Profile
from meshmark.explain.actions import command_of
from meshmark.explain.situation import Situation
from meshmark.explain.surroundings import Surroundings
from meshmark.explain.verdict import PlacementVerdict
from meshmark.machine.tree import format_list


def answer(situation: Situation, verdict: PlacementVerdict) -> dict[str, Any]:
    """Return the object that `meshmark placed --json` prints: bytes, seconds and shares of accesses."""
    gain, observation = verdict.gain, situation.observation
    nodes, traffic = situation.traffic()
    return {
        "verdict": verdict.kind,
        "cause": verdict.cause,
        "sentence": verdict.sentence,
        "command": command_of(verdict.action, situation.target, situation.process) if verdict.action else "",
        "target": {"kind": situation.target.kind, "name": situation.target.name, "manager": situation.target.manager},
        "slowdown": None
        if gain is None
        else {"of": gain.of, "ratio": gain.ratio, "interval": [gain.low, gain.high], "measured": gain.measured},
        "notes": list(verdict.notes),
        "seconds": observation.seconds,
        "cost_s": observation.cost_s,
        "cpus_used": observation.ran_s / observation.seconds,
        "cpus_needed": situation.demand,
        "accesses": []
        if traffic is None
        else [
            {
                "from": nodes[i],
                "to": nodes[j],
                "share": float(traffic.value[i, j]),
                "low": float(traffic.low[i, j]),
                "high": float(traffic.high[i, j]),
            }
            for i, j in np.argwhere(traffic.value > 0)
        ],
        "remote": None
        if traffic is None
        else {"share": traffic.remote, "low": traffic.remote_low, "high": traffic.remote_high},
        "surroundings": _surroundings(observation.surroundings),
        "processes": [
            {
                "process": p.process,
                "command": p.command,
                "threads": p.threads,
                "ran_s": p.ran_s,
                "waited_s": p.waited_s,
                "ran_by_node": {str(n): s for n, s in p.ran_by_node.items()},
                "allowed": [{"cpus": format_list(m.cpus), "threads": m.threads} for m in p.masks],
                "allowed_nodes": format_list(p.allowed_nodes),
                "resident_bytes": p.resident_bytes,
                "swapped_bytes": p.swapped_bytes,
                "pages": None
                if p.pages is None
                else {
                    "by_node": {str(n): b for n, b in p.pages.own.items()},
                    "huge_bytes": p.pages.huge_bytes,
                    "sampled": p.pages.sampled,
                    "exact": p.pages.exact,
                },
                "pages_absent": p.pages_absent,
            }
            for p in observation.processes
        ],
    }


def _surroundings(around: Surroundings) -> dict[str, Any]:
    scheduling = [{"class": kind, "nice": nice, "threads": n} for (kind, nice), n in around.scheduling.items()]
    tiers = [format_list(nodes) for nodes in around.tiers]
    cpuset = around.cpuset and {
        "path": around.cpuset.path,
        "cpus": format_list(around.cpuset.cpus),
        "nodes": format_list(around.cpuset.nodes),
    }
    return {**asdict(around), "scheduling": scheduling, "tiers": tiers, "cpuset": cpuset}


def profile_answer(profile: Profile) -> dict[str, Any]:
    """Return the profile of a process as JSON: shares of samples, with their 95 % intervals."""
    left_out = ("type", "configuration", "file")
    return {"process": profile.configuration, **{k: v for k, v in profile.to_json().items() if k not in left_out}}
