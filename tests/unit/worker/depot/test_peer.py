"""Nodes give model files to each other, as far as the manager says, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from corral.agent.link.model_peers import PeerProcess
from corral.core.nodes.peer import file_path
from corral.worker.depot.fetch_model import ManagerAccess, ModelFetch, ModelFolders
from corral.worker.depot.model_folder import Depot
from corral.worker.manager_link import ManagerLink
from tests.unit.worker.depot.file_server import WORKER, FileServer, sha256
from tests.unit.worker.supervised import until

WEIGHTS = bytes(range(256)) * 4096
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS}
FILE = f"/workers/{WORKER}/models/tiny/files/model.safetensors"
Room = Callable[[str], ModelFetch]


@pytest.fixture
def server() -> Iterator[FileServer]:
    made = FileServer()
    made.add("tiny", FILES)
    yield made
    made.close()


@pytest.fixture
def room(server: FileServer, tmp_path: Path) -> Iterator[Room]:
    links = []

    def make(node: str) -> ModelFetch:
        links.append(ManagerLink(server.url, "key"))
        reach = ManagerAccess(WORKER, server.url, "key")
        return ModelFetch(
            Depot(tmp_path / node, 1 << 30), links[-1], reach, ModelFolders()
        )

    yield make
    for link in links:
        link.close()


@pytest.fixture
def giver(server: FileServer, room: Room, tmp_path: Path) -> Iterator[PeerProcess]:
    """A node that has the model, and says so."""
    room("first").bring("tiny").release()
    folder = str(tmp_path / "first")
    keeper = PeerProcess(server.url, folder, 0, tmp_path / "logs")
    keeper.start()
    until(keeper.word)
    yield keeper
    keeper.stop()


def address(giver: PeerProcess, sha: str, *, of: str = "", lasts_s: int = 60) -> str:
    word = giver.word()
    assert word is not None
    path = file_path(word.secret, of or sha, int(time.time()) + lasts_s)
    return word.url + path.replace(of or sha, sha)


def name_peer(server: FileServer, *urls: str) -> None:
    """From now on the manager names them for the weights."""
    server.facts["tiny"]["rows"] = {"model.safetensors": {"peers": list(urls)}}


def there(tmp_path: Path, node: str) -> bytes:
    return (tmp_path / node / "tiny" / "model.safetensors").read_bytes()


def test_what_one_node_has_another_takes_from_it(
    giver: PeerProcess, server: FileServer, room: Room, tmp_path: Path
) -> None:
    word = giver.word()
    assert word is not None
    assert list(word.models) == ["tiny"]
    name_peer(server, address(giver, sha256(WEIGHTS)))
    room("second").bring("tiny").release()
    assert there(tmp_path, "second") == WEIGHTS
    assert server.asked[FILE] == 1


def test_a_peer_goes_on_where_another_broke_off_and_one_without_it_is_passed_by(
    giver: PeerProcess, server: FileServer, room: Room, tmp_path: Path
) -> None:
    name_peer(server, address(giver, "0" * 64), address(giver, sha256(WEIGHTS)))
    url = address(giver, sha256(WEIGHTS))
    rest = httpx.get(url, headers={"Range": "bytes=300000-"}, trust_env=False)
    assert (rest.status_code, rest.content) == (206, WEIGHTS[300_000:])
    room("second").bring("tiny").release()
    assert there(tmp_path, "second") == WEIGHTS
    assert server.asked[FILE] == 1


def test_other_bytes_of_a_peer_are_refused_and_the_file_still_comes(
    giver: PeerProcess,
    server: FileServer,
    room: Room,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = WEIGHTS[::-1]
    (tmp_path / "first" / "tiny" / "model.safetensors").write_bytes(other)
    name_peer(server, address(giver, sha256(WEIGHTS)))
    room("second").bring("tiny").release()
    assert there(tmp_path, "second") == WEIGHTS
    assert server.asked[FILE] == 2
    assert "a peer gave other bytes" in caplog.text
    assert sha256(other) in caplog.text
    assert sha256(WEIGHTS) in caplog.text


def test_a_peer_that_is_gone_is_done_without(
    giver: PeerProcess, server: FileServer, room: Room, tmp_path: Path
) -> None:
    url = address(giver, sha256(WEIGHTS))
    giver.stop()
    until(lambda: giver.word() is None)
    name_peer(server, url)
    room("second").bring("tiny").release()
    assert there(tmp_path, "second") == WEIGHTS
    assert server.asked[FILE] == 2


def test_nothing_is_given_without_the_managers_word_for_it(giver: PeerProcess) -> None:
    right, config = sha256(WEIGHTS), sha256(FILES["config.json"])
    good = address(giver, right)
    wrong = [
        good.partition("?")[0],
        good[:-1] + ("0" if good[-1] != "0" else "1"),
        good.replace("until=", "until=1"),
        address(giver, right, of=config),
        address(giver, right, lasts_s=-60),
        good.replace(f"/files/{right}", "/files/../notes/tiny.json"),
        good.replace("/files/", "/"),
    ]
    for url in wrong:
        assert httpx.get(url, trust_env=False).status_code == 403, url
    unknown = httpx.get(address(giver, "f" * 64), trust_env=False)
    assert unknown.status_code == 404
    past = {"Range": "bytes=99999999-"}
    assert httpx.get(good, headers=past, trust_env=False).status_code == 416
    assert httpx.get(good, trust_env=False).content == WEIGHTS
