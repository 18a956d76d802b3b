"""Wrong routes are found by the loads of links, and healthy machines are not reported."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.model.engine import ask
from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.watch.frames import Frame, Header, header_of
from meshmark.watch.links.even import vertex_volumes
from meshmark.watch.links.expected import AGREE, DIFFER, UNDECIDED, compare_with_expected
from meshmark.watch.links.network import network_of
from meshmark.watch.links.traffic import traffic_of
from meshmark.watch.links.use import link_use
from meshmark.watch.recording import Recorder
from support.cli import meshmark
from support.link_cases import LinkCase
from support.made_recordings import header as header_without_links

RING = LinkCase("es80", "random_reads", 4, 5e-6, seed=3)
RING_ROUTE = (1, 0, 7, 6, 5, 4)
TORUS = LinkCase("gs1280-16", "halo", 4, 2e-6, seed=3, frames=200)
TORUS_ROUTE = (0, 4, 5, 1)


def header_of_model(name: str) -> Header:
    return header_of(header_line(find_machine(name), 1e-6))


@pytest.mark.parametrize("case", [RING, TORUS])
def test_a_healthy_machine_agrees(case: LinkCase) -> None:
    loads = case.compared()
    assert (loads.verdict, loads.route) == (AGREE, None)
    assert loads.sentence.startswith(f"the loads of all {len(loads.links)} links agree with the topology")
    assert 0 < loads.within < 0.05


@pytest.mark.parametrize(("case", "path"), [(RING, RING_ROUTE), (TORUS, TORUS_ROUTE)])
def test_a_planted_route_is_found_and_named(case: LinkCase, path: tuple[int, ...]) -> None:
    loads = dataclasses.replace(case, path=path).compared()
    assert loads.verdict == DIFFER and loads.route is not None
    assert loads.route.path == path
    assert f"packets of router {path[0]} for router {path[-1]} take" in loads.cause


def test_a_hot_spot_is_explained_although_nodes_read_at_different_rates() -> None:
    hot_spot = LinkCase("gs1280-16", "hot_spot", 2, 2e-5, seed=5, frames=100)
    loads = hot_spot.compared()
    assert loads.verdict == AGREE and not loads.traffic.is_even
    observed = [link.observed for link in loads.links]
    assert max(observed) > 20 * min(observed)


@pytest.mark.parametrize("name", ["gs1280-16", "es80", "cray-x1", "altix3700", "gs320-32"])
def test_loads_of_shortest_paths_are_those_of_the_simulator(name: str) -> None:
    header = header_of_model(name)
    network = network_of(header)
    volumes = vertex_volumes(network, traffic_of("uniform", header)) / header.count("node") ** 2
    simulated = {(x["from"], x["to"]): x["share"] for x in ask(find_machine(name), [{"kind": "loads"}])[0]["links"]}
    loads = network.loads(volumes)
    for link, ends in enumerate(network.ends):
        assert loads[link] == pytest.approx(simulated[ends], abs=1e-12)


def test_the_distribution_of_even_traffic_has_no_parameter_but_ties() -> None:
    header = header_of_model("gs1280-16")
    network = network_of(header)
    assert set(network.tie_groups) == {0, 1, 2, 3}
    assert set(network_of(header_of_model("gs320-32")).tie_groups) == {0}  # every path is the only one


def frames_of(uses: Sequence[Sequence[float | None]]) -> list[Frame]:
    return [Frame(n, 1e-6 * n, 1e-6, {"link.busy": list(row)}) for n, row in enumerate(uses)]


def even_uses(header: Header, count: int, drift: float = 0.0) -> list[list[float | None]]:
    """Return the use of the links of a ring in uniform traffic with independent noise, or a slow drift of one link."""
    rng = np.random.default_rng(1)
    network = network_of(header)
    loads = network.loads(vertex_volumes(network, traffic_of("uniform", header)))
    uses = np.tile(0.5 * loads / loads.mean(), (count, 1)) + rng.normal(0, 0.01, (count, len(loads)))
    uses[:, 0] += drift * np.sin(np.linspace(0, np.pi, count))
    return [[float(v) for v in row] for row in uses]


def test_no_verdict_if_the_loads_change_too_slowly() -> None:
    header = header_of_model("es80")
    loads = compare_with_expected("slow", header, frames_of(even_uses(header, 200, 0.4)), traffic_of("uniform", header))
    assert loads.verdict == UNDECIDED and loads.sentence.startswith("no verdict:")
    assert all(link.half_width is None and not link.differs for link in loads.links)


def test_one_link_with_another_load_is_named() -> None:
    header = header_of_model("es80")
    uses = np.array(even_uses(header, 200))
    uses[:, 3] += 0.05
    loads = compare_with_expected("one", header, frames_of(uses.tolist()), traffic_of("uniform", header))
    assert [link.name for link in loads.links if link.differs] == [header.names("link")[3]]
    assert loads.route is None and loads.cause == "no single wrong route explains the differences"


def test_healthy_noise_is_rarely_reported() -> None:
    header = header_of_model("es80")
    traffic = traffic_of("uniform", header)
    rng = np.random.default_rng(11)
    base = np.array(even_uses(header, 40)).mean(axis=0)
    reported = 0
    for _ in range(100):
        uses = base + rng.normal(0, 0.05, (40, len(base)))
        reported += compare_with_expected("x", header, frames_of(uses.tolist()), traffic).verdict == DIFFER
    assert reported <= 4  # 1 of 100 is the bound; 5 or more have a probability of 0.4 % at this bound


def test_too_few_frames_and_unknown_uses_are_refused() -> None:
    header = header_of_model("es80")
    traffic = traffic_of("uniform", header)
    with pytest.raises(MeshmarkError, match="found 5 frames; allowed: at least 20"):
        compare_with_expected("few", header, frames_of(even_uses(header, 5)), traffic)
    uses = even_uses(header, 30)
    uses[7][2] = None
    with pytest.raises(MeshmarkError, match="the use of some links is unknown"):
        compare_with_expected("hole", header, frames_of(uses), traffic)


def test_traffic_of_a_file_and_of_the_workload(tmp_path: Path) -> None:
    header = header_of_model("es80")
    rows = [["0" if i == j else "2.5" for j in range(8)] for i in range(8)]
    file = tmp_path / "volumes.csv"
    file.write_text("\n".join(map(",".join, rows)) + "\n", encoding="utf-8")
    assert traffic_of(str(file), header).is_even
    file.write_text("1,2\n3,4\n", encoding="utf-8")
    with pytest.raises(UsageError, match="found 2 rows of 2 numbers; allowed: 8 rows of 8 numbers"):
        traffic_of(str(file), header)
    with pytest.raises(UsageError, match="found 'rumour'; allowed: workload, uniform"):
        traffic_of("rumour", header)
    with pytest.raises(MeshmarkError, match="the recording does not state its traffic"):
        traffic_of("workload", header)
    assert traffic_of("workload", RING.header).is_even
    assert not traffic_of("workload", TORUS.header).is_even


def test_use_by_direction_and_class() -> None:
    header = header_of_model("gs1280-16")
    network = network_of(header)
    uses = [[0.8 if d == (0, 1) else 0.2 for d in network.directions]] * 3
    use = link_use(header, network, frames_of([*uses, [0.0] * len(network.ends)]))
    by_name = {g.name: g for g in use.groups}
    assert by_name["east"].mean == pytest.approx(0.6) and by_name["east"].peak == pytest.approx(0.8)
    assert by_name["east-west"].mean == pytest.approx(0.375) and by_name["north-south"].links == 32
    assert {g.name for g in use.groups if g.kind == "class"} == {"module", "backplane", "cable"}
    tree = header_of_model("altix3700")
    use = link_use(tree, network_of(tree), frames_of([[0.1] * tree.count("link")]))
    assert [g.name for g in use.groups] == ["numalink"] and "not a grid" in use.absent["direction"]


def test_machines_without_links_are_refused() -> None:
    with pytest.raises(MeshmarkError, match="links: found none in the recording of test"):
        network_of(header_without_links())


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = dataclasses.replace(TORUS, path=TORUS_ROUTE)
    path = tmp_path_factory.mktemp("links") / "planted.parquet"
    with Recorder(path, case.header) as recorder:
        for frame in case.recorded():
            recorder.add(frame)
    return path


def test_the_command_prints_the_result_first(planted: Path, tmp_path: Path) -> None:
    completed = meshmark("replay", planted, "--expected", "workload")
    first, second, *rest = completed.stdout.splitlines()
    assert "differ from what the topology and the traffic halo predict" in first
    assert "take 0 → 4 → 5 → 1 instead of 0 → 1" in second
    assert any("east-west" in line for line in rest)
    answer = json.loads(meshmark("replay", planted, "--expected", "workload", "--json").stdout)
    assert answer["type"] == "expected" and answer["verdict"] == "differ" and answer["route"]["path"] == [0, 4, 5, 1]
    assert {link["name"] for link in answer["links"] if link["differs"]} >= {"0 to 1", "0 to 4", "4 to 5", "5 to 1"}
    page = tmp_path / "page.html"
    assert meshmark("replay", planted, "--expected", "workload", "--html", page).returncode == 0 and page.exists()


def test_links_of_a_window(planted: Path) -> None:
    answer = json.loads(meshmark("replay", planted, "--links", "--from", "100us", "--to", "200us", "--json").stdout)
    assert answer["type"] == "links" and 50 <= answer["frames"] <= 52
    assert {"east-west", "north-south"} <= {g["name"] for g in answer["groups"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "1us"), "--from: found without one of --traffic"),
        (("--links", "--html", "x.html"), "--html: found with --links, allowed without it"),
        (
            ("--expected", "uniform", "--trace", "x.json"),
            "--trace: found with --expected, allowed without it",
        ),
        (("--links", "--from", "2us", "--to", "1us"), "--from: found 2e-06 s; allowed: less than --to (1e-06 s)"),
        (("--expected", "uniform", "--palette", "cividis"), "--palette: found with --expected"),
    ],
)
def test_options_that_contradict_are_refused(planted: Path, words: tuple[str, ...], message: str) -> None:
    completed = meshmark("replay", planted, *words)
    assert completed.returncode == 2 and message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("[[1]]", "fewer than two routers"),
        ("[[0,1,0]]", "router 0 twice in a route"),
        ("[[0,5]]", "no link from router 0 to router 5"),
        ("[[0,1],[2,1]]", "two routes to router 1"),
        ("[[0,99]]", "router 99"),
        ("7", "found 7; allowed: a list of routes"),
    ],
)
def test_invalid_routes_are_refused(routes: str, message: str) -> None:
    with pytest.raises(MeshmarkError, match=r"router\.routes") as error:
        ask(find_machine("gs1280-16", [f"router.routes={routes}"]), [{"kind": "describe"}])
    assert message in str(error.value)


def test_a_route_of_the_machine_file_changes_the_loads_along_it() -> None:
    def loads(*settings: str) -> dict[tuple[int, int], float]:
        links = ask(find_machine("gs1280-16", list(settings)), [{"kind": "loads"}])[0]["links"]
        return {(link["from"], link["to"]): link["share"] for link in links}

    healthy, planted = loads(), loads("router.routes=[[0,4,5,1]]")
    change = {ends: planted[ends] - healthy[ends] for ends in healthy}
    assert min(change[0, 4], change[4, 5], change[5, 1]) >= 1 / 16**2 - 1e-9  # the packets of node 0, and others
    assert change[0, 1] <= -1 / 16**2 + 1e-9
    assert change[10, 11] == pytest.approx(0)
