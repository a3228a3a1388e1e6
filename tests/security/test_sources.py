"""Where files of models and of code come from: nothing leads to anything else."""

from __future__ import annotations

import contextlib
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from corral.core import tree as trees
from corral.core.models.catalogue import CatalogueModel, read_source
from corral.core.tree import CHUNK_BYTES, Tree, TreeFile
from corral.errors import BadRequest, InvalidField, NotFound, TooLarge
from corral.files.tree import read_manifest
from corral.manager.config import ManagerConfig
from corral.manager.models.hub import Hub
from corral.manager.models.sources import SourceConfig, Sources, Survey
from tests.acceptance.cluster import until
from tests.security.conftest import Attacked
from tests.unit.api.world import SECRET, fault, running

HIDDEN = b"the cluster's secret"
DIGEST = "a" * 64


@pytest.fixture
def places(tmp_path: Path) -> SourceConfig:
    """Folders for models, a model in one of them, and a secret beside them."""
    for folder in ("models/tiny", "theirs", "hub", "home"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "models/tiny/config.json").write_bytes(b"{}                       ")
    (tmp_path / "home/cluster.secret").write_bytes(HIDDEN)
    return SourceConfig(
        (tmp_path / "models",),
        hub_cache=tmp_path / "hub",
        service_path=tmp_path / "theirs",
    )


def model(source: str) -> CatalogueModel:
    return CatalogueModel("peek", source=source)


async def survey(config: SourceConfig, source: str) -> Survey:
    return await Sources(config).survey(model(source), lambda done, total: None)


def test_h1_operator_reads_no_folder_of_the_manager(attacked: Attacked) -> None:
    home = attacked.cluster.home
    models = home / "models"
    models.mkdir(exist_ok=True)
    (models / "peek-link").symlink_to(home / "secrets")
    tried = (
        str(home / "secrets"),
        f"model-manager:{home / 'secrets'}",
        "model-manager:../secrets",
        "model-manager:peek-link",
        "../secrets",
        str(models / ".." / "secrets"),
        "peek-link",
        str(models / "peek-link"),
    )
    with attacked.http("operate") as http, attacked.http("admin") as admin:
        for source in tried:
            answer = http.post("/models", json={"name": "peek", "source": source})
            if answer.status_code == 201:
                # A name for which a model manager is asked is looked for later.
                assert source == "model-manager:peek-link"
                assert "leads out" in failure_of(http, "peek")
                admin.delete("/models/peek")
            else:
                assert answer.status_code in (403, 422), (source, answer.text)


def failure_of(http: httpx.Client, name: str) -> str:
    def ended() -> dict[str, str] | None:
        told = http.get(f"/models/{name}").json()
        return None if told["status"] == "reading" else told

    told = until("its source was read", ended)
    assert told["status"] == "failed"
    assert not told["files"]
    return str(told["error"])


def test_h1_operator_names_only_buckets_of_the_list(attacked: Attacked) -> None:
    with attacked.http("operate") as http:
        body = {"name": "peek", "source": "s3://backups/postgres"}
        answer = http.post("/models", json=body)
    assert answer.status_code == 403
    assert "CORRAL_MODEL_BUCKETS" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("place", "is_modest"),
    [
        ("s3://models", True),
        ("s3://models/any/thing", True),
        ("s3://models-of-others/x", False),
        ("s3://shared/weights/x", True),
        ("s3://shared/weights-of-others", False),
        ("s3://shared", False),
    ],
)
def test_h1_bucket_is_allowed_whole_or_by_prefix(place: str, is_modest: bool) -> None:
    sources = Sources(SourceConfig(buckets=("models", "shared/weights/")))
    assert sources.is_modest(read_source(place)) is is_modest


@pytest.mark.parametrize(
    "place", ["s3://shared/weights/../x", "s3://shared/weights/.\t./x", "s3://a//b"]
)
def test_h1_bucket_has_no_way_up(place: str) -> None:
    with pytest.raises(InvalidField):
        read_source(place)


async def test_h1_stored_path_is_not_read_either(
    places: SourceConfig, tmp_path: Path
) -> None:
    """Rows of before, and names that a model manager answers with."""
    for source in (f"model-manager:{tmp_path}/home", "model-manager:../home"):
        with pytest.raises(InvalidField):
            await survey(places, source)


@pytest.mark.parametrize("source", ["{}/models/out", "out", "model-manager:out"])
async def test_h1_folder_swapped_for_a_link_is_refused(
    places: SourceConfig, tmp_path: Path, source: str
) -> None:
    (tmp_path / "models/out").symlink_to(tmp_path / "home")
    with pytest.raises(InvalidField, match="leads out"):
        await survey(places, source.format(tmp_path))


async def test_h1_file_swapped_for_a_link_is_not_given_out(
    places: SourceConfig, tmp_path: Path
) -> None:
    found = await survey(places, "tiny")
    peek = replace(model("tiny"), files=found.files)
    file = tmp_path / "models/tiny/config.json"
    assert await given(places, peek) == file.read_bytes()
    file.unlink()
    file.symlink_to(tmp_path / "home/cluster.secret")
    with pytest.raises(NotFound):
        await given(places, peek)


async def given(config: SourceConfig, peek: CatalogueModel) -> bytes:
    stream: AsyncIterator[bytes] = await Sources(config).open_file(
        peek, peek.files[0], 0
    )
    return b"".join([piece async for piece in stream])


async def test_h1_cache_of_the_hub_names_no_snapshot_elsewhere(
    places: SourceConfig, tmp_path: Path
) -> None:
    base = tmp_path / "hub/models--owner--tiny"
    for folder in ("refs", "snapshots"):
        (base / folder).mkdir(parents=True)
    (base / "refs/main").write_text("../../../home")
    located = await Sources(places).locate(model("hf:owner/tiny"))
    assert located is None


def test_m5_list_is_of_so_many_pieces_each_once() -> None:
    for pieces in ([DIGEST] * 2, [f"{n:064x}" for n in range(65)]):
        with pytest.raises(BadRequest, match="pieces"):
            trees.pieces_of(trees.manifest(pieces))
    most = [f"{n:064x}" for n in range(64)]
    assert len(trees.pieces_of(trees.manifest(most))) == 64


def test_m5_pieces_are_taken_no_further_than_a_list_may_be_long() -> None:
    taken = []

    def endless() -> Iterator[bytes]:
        for number in range(64):
            taken.append(number)
            yield bytes(16 << 20)

    names = [f"{n:064x}" for n in range(64)]
    with pytest.raises(BadRequest, match="more than"):
        trees.decode(trees.manifest(names), endless())
    assert len(taken) == 5


def test_m5_files_of_a_tree_are_no_larger_together_than_is_written() -> None:
    """One object of 8 MiB, named by as many files as one likes, fills any disk."""
    many = Tree(tuple(TreeFile(f"f{n}", CHUNK_BYTES, DIGEST) for n in range(513)))
    (data,) = trees.encode(many)
    with pytest.raises(TooLarge, match="4294967296 are allowed"):
        read_manifest(data, lambda digest: b"")
    assert trees.decode(data, limit_bytes=None).size == many.size


def test_m5_list_of_more_values_than_fit_into_memory_is_not_parsed() -> None:
    rows = b'{"corral":"tree","rows":[%s]}' % b",".join([b"[]"] * 2_000_000)
    letters = '{"corral":"tree","rows":[["f","\U0001f40e",1]]}'.encode()
    for data in (rows, letters):
        with pytest.raises(BadRequest, match="not written as one"):
            trees.decode(data)


async def test_m5_garbage_collection_outlives_a_bomb_in_a_payload() -> None:
    async with running() as world:
        objects = world.manager.ctx.objects
        piece = await objects.put(bytes(1 << 20))
        bomb = await objects.put(trees.manifest([piece] * 200))
        large = [await objects.put(bytes([n]) + bytes(8 << 20)) for n in range(9)]
        second = await objects.put(trees.manifest(large))
        await world.operate.tell("/job-types", {"name": "echo"})
        parameters = {"archives": [bomb, second]}
        await world.submit.submit("echo", parameters=parameters)
        tracemalloc.start()
        try:
            await world.manager.upkeep.objects.collect()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 32 << 20
        assert await objects.exists(bomb)


async def test_m5_tree_of_a_node_is_kept_within_the_limit() -> None:
    """Also a checkpoint, which another node writes to its disk."""
    async with running(ManagerConfig(SECRET, artifact_limit_bytes=10)) as world:
        worker = await world.worker("echo")
        await world.submit.submit("echo")
        item = worker.take_one()
        await worker.begin(item)
        (data,) = trees.encode(Tree((TreeFile("f", 11, DIGEST),)))
        told = {
            "task_id": item["task_id"],
            "attempt": item["attempt"],
            "kind": "checkpoint",
            "digest": await world.manager.ctx.objects.put(data),
        }
        answer = await worker.node.caller.post(f"/workers/{worker.id}/trees", told)
        assert "CORRAL_ARTIFACT_LIMIT_GB" in fault(answer, 413, "too_large")["message"]


class LyingHub(BaseHTTPRequestHandler):
    """Tells of a small file, and sends a large one."""

    def do_GET(self) -> None:
        files = [{"rfilename": "config.json", "size": 10}]
        told = json.dumps({"sha": "c" * 40, "siblings": files}).encode()
        is_file = "/resolve/" in self.path
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):  # it has heard enough
            for _ in range(80 if is_file else 0):
                self.wfile.write(bytes(1 << 20))
            self.wfile.write(b"" if is_file else told)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


async def test_l7_small_file_of_a_hub_is_small_whatever_it_told() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), LyingHub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
        tracemalloc.start()
        try:
            with pytest.raises(NotFound, match=r"config\.json is large"):
                await hub.survey("owner/tiny", "")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            server.shutdown()
            thread.join()
    assert most < 16 << 20


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://10.0.0.1:7001", "http://10.0.0.1:7001"),
        ("http://10.0.0.1:7001/admin?x=", "http://10.0.0.1:7001"),
        ("http://user:word@10.0.0.1:7001", "http://10.0.0.1:7001"),
        ("http://10.0.0.9:80", None),
        ("http://169.254.169.254:80/latest", None),
        ("http://somewhere.lan:80", None),
        ("http://10.0.0.1:7001@10.0.0.9:80", None),
    ],
)
async def test_l6_node_sends_others_to_itself_alone(
    url: str, reached: str | None
) -> None:
    async with running() as world:
        node = await world.node(ip="::ffff:10.0.0.1")
        await node.beat(peer={"url": url, "secret": "s" * 64, "models": {}})
        peer = world.manager.ctx.cluster.nodes[node.id].peer
        assert (peer.url if peer else None) == reached


async def test_l6_node_has_the_address_it_is_seen_at() -> None:
    """It becomes MASTER_ADDR for the others of a gang."""
    async with running() as world:
        node = await world.node(ip="10.0.0.1")
        claim = {"hostname": "h", "address": "10.0.0.9"}
        await node.caller.tell(f"/nodes/{node.id}/register", claim)
        shown = world.manager.ctx.cluster.nodes[node.id].node
        assert shown.address == "10.0.0.1"
