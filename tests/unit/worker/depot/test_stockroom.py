"""Models come to a node once, whole and checked, or the reason is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corral.worker.depot.fetch_model import ManagerAccess, ModelFetch, ModelFolders
from corral.worker.depot.manifest import CorruptModel, Unfetched
from corral.worker.depot.model_folder import Depot
from corral.worker.inference.load.resolve import DepotResolver
from corral.worker.manager_link import ManagerLink
from tests.unit.worker.depot.file_server import WORKER, FileServer, sha256

WEIGHTS = bytes(range(256)) * 4096
FILES = {
    "config.json": b'{"architectures": ["TinyForCausalLM"]}',
    "parts/model.safetensors": WEIGHTS,
}
FILE = f"/workers/{WORKER}/models/tiny/files/parts/model.safetensors"
Open = Callable[..., ModelFetch]


@pytest.fixture
def server() -> Iterator[FileServer]:
    made = FileServer()
    made.add("tiny", FILES, revision="r1", type="llm", trust_remote_code=True)
    yield made
    made.close()


@pytest.fixture
def opened(server: FileServer, tmp_path: Path) -> Iterator[Open]:
    links = []

    def make(limit: int = 1 << 30, **places: Path) -> ModelFetch:
        link = ManagerLink(server.url, "key")
        links.append(link)
        return ModelFetch(
            Depot(tmp_path / "models", limit),
            link,
            ManagerAccess(WORKER, server.url, "key"),
            ModelFolders(**places),
        )

    yield make
    for link in links:
        link.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_model_is_fetched_whole_with_its_progress(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    told: list[tuple[float, str]] = []
    brought = opened().bring("tiny", lambda share, text: told.append((share, text)))
    brought.release()
    assert contents(tmp_path / "models" / "tiny") == FILES
    assert told[-1] == (1.0, "tiny is here")
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert server.keys == {"Bearer key"}


@pytest.mark.spec("C55")
def test_any_number_of_workers_fetch_a_model_once(
    opened: Open, server: FileServer
) -> None:
    rooms = [opened() for _ in range(8)]
    start = threading.Barrier(len(rooms))

    def ask(room: ModelFetch) -> None:
        start.wait(60)
        room.bring("tiny").release()

    with ThreadPoolExecutor(len(rooms)) as pool:
        assert list(pool.map(ask, rooms)) == [None] * len(rooms)
    assert server.asked[FILE] == 1
    opened().bring("tiny").release()
    assert server.asked[FILE] == 1


def test_a_fetch_that_breaks_off_goes_on_where_it_broke(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    server.break_after = [1 << 20, 300_000, 200_000]
    opened().bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == FILES
    assert 300_000 in server.starts
    assert 500_000 in server.starts


def test_a_server_that_knows_no_ranges_sends_it_all_again(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    server.knows_ranges = False
    server.break_after = [1 << 20, 300_000]
    opened().bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == FILES


def test_what_came_before_a_failure_is_kept_for_the_next_try(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    class Enough(Exception):
        """The task is not wanted any more."""

    pieces = 0

    def check() -> None:
        nonlocal pieces
        pieces += 1
        if pieces > 1:
            raise Enough

    server.add("tiny", {"model.safetensors": WEIGHTS * 4})
    with pytest.raises(Enough):
        opened().bring("tiny", check=check)
    assert not (tmp_path / "models" / "tiny").exists()
    opened().bring("tiny").release()
    assert server.starts[-1] > 0
    assert contents(tmp_path / "models" / "tiny") == server.models["tiny"]


def test_a_corrupt_file_is_named_with_both_hashes_and_removed(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    wrong = WEIGHTS[:-1] + b"x"
    server.lies["parts/model.safetensors"] = wrong
    with pytest.raises(CorruptModel) as caught:
        opened().bring("tiny")
    assert "parts/model.safetensors of model tiny" in caught.value.message
    assert sha256(wrong) in caught.value.message
    assert sha256(WEIGHTS) in caught.value.message
    left = list((tmp_path / "models").rglob("*safetensors*"))
    assert left == []
    server.lies.clear()
    opened().bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == FILES


def test_files_nobody_has_say_so(opened: Open, server: FileServer) -> None:
    server.file_status = 404
    with pytest.raises(Unfetched, match=r"0 of \d+ bytes of config.json came, then"):
        opened().bring("tiny")


def test_the_least_recently_used_model_goes_when_the_disk_is_full(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    room = opened(limit=2_500)
    for name in ("a", "b", "c"):
        server.add(name, {"config.json": name.encode() * 1000})
    depot, folder = Depot(tmp_path / "models", 0), tmp_path / "models"
    for age, name in enumerate(("b", "a")):
        room.bring(name).release()
        os.utime(folder / ".corral" / "notes" / f"{name}.json", (age, age))
    room.bring("c").release()
    assert sorted(note.bill.name for note in depot.notes()) == ["a", "c"]
    assert not (folder / "b").exists()
    held = room.bring("a")
    server.add("d", {"config.json": b"d" * 2000})
    with pytest.raises(Unfetched, match="in use"):
        room.bring("d")
    assert (folder / "a").exists()
    held.release()
    room.bring("d").release()
    assert sorted(note.bill.name for note in depot.notes()) == ["d"]
    server.add("e", {"config.json": b"e" * 3000})
    with pytest.raises(Unfetched, match="CORRAL_MODEL_DISK_GB"):
        room.bring("e")


def test_a_source_out_of_reach_leaves_the_manager(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    mirror = f"{server.url}/mirror/tiny/config.json"
    dead = "http://127.0.0.1:1/model.safetensors"
    urls = {"config.json": {"url": mirror}, "parts/model.safetensors": {"url": dead}}
    server.add("tiny", FILES, rows=urls)
    opened().bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == FILES
    assert server.asked["/mirror/tiny/config.json"] == 1
    assert server.asked[FILE] == 1
    note = (tmp_path / "models" / ".corral" / "notes" / "tiny.json").read_text()
    assert "http" not in note


def test_files_in_the_managers_store_come_in_pieces(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    first, second = b"1" * (8 << 20), b"2" * 100
    parts = [sha256(first), sha256(second)]
    server.objects = dict(zip(parts, (first, second), strict=True))
    weights = {"model.safetensors": first + second}
    server.add("tiny", weights, rows={"model.safetensors": {"parts": parts}})
    opened().bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == weights


def snapshot(folder: Path, files: dict[str, bytes]) -> Path:
    """A cache as the hub's own tools make it: links to blobs."""
    base = folder / "models--owner--tiny"
    for name, data in files.items():
        blob = base / "blobs" / sha256(data)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = base / "snapshots" / "r1" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return base / "snapshots" / "r1"


@pytest.mark.spec("A28")
def test_what_lies_in_a_hub_cache_or_a_shared_folder_is_used_there(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    place = snapshot(tmp_path / "hub", FILES)
    server.add("tiny", FILES, source="hf:owner/tiny", revision="r1")
    brought = opened(hub_cache=tmp_path / "hub").bring("tiny")
    assert brought.note is not None
    assert brought.note.folder == str(place)
    brought.release()
    server.add("other", FILES)
    (tmp_path / "shared" / "other" / "parts").mkdir(parents=True)
    for name, data in FILES.items():
        (tmp_path / "shared" / "other" / name).write_bytes(data)
    opened(shared=tmp_path / "shared").bring("other").release()
    assert not [path for path in server.asked if "/files/" in path]
    ref = DepotResolver(tmp_path / "models", {}).resolve("other")
    assert ref.folder == tmp_path / "shared" / "other"
    assert ref.files["config.json"] == sha256(FILES["config.json"])


def test_a_shared_copy_that_is_corrupt_is_not_used(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    snapshot(tmp_path / "hub", {**FILES, "config.json": b"x" * 38})
    server.add("tiny", FILES, source="hf:owner/tiny", revision="r1")
    opened(hub_cache=tmp_path / "hub").bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == FILES


def test_a_folder_somebody_else_put_there_is_used_and_never_touched(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    own = tmp_path / "models" / "tiny"
    own.mkdir(parents=True)
    (own / "config.json").write_text('{"n": 1}')
    with pytest.raises(Unfetched, match="is not model tiny of the catalogue"):
        opened().bring("tiny")
    assert contents(own) == {"config.json": b'{"n": 1}'}
    opened().bring("nobody-knows").release()
    assert DepotResolver(tmp_path / "models", {}).resolve("tiny").folder == own


def test_without_its_manager_a_node_goes_on_with_what_it_has(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    opened().bring("tiny").release()
    server.status = 503
    brought = opened().bring("tiny")
    assert brought.note is not None
    brought.release()
    other = opened().bring("other")
    assert other.note is None
    assert "the model manager does not answer" in other.trouble


def test_a_source_that_is_being_read_is_waited_for(
    opened: Open, server: FileServer
) -> None:
    told: list[str] = []
    server.bills = [{"name": "tiny", "status": "reading"}]
    opened().bring("tiny", lambda share, text: told.append(text)).release()
    assert told[0] == "the manager reads the source of tiny"


def test_a_source_that_fails_leaves_what_is_here(
    opened: Open, server: FileServer
) -> None:
    failed = {"name": "tiny", "status": "failed", "error": "no such bucket"}
    server.bills = [failed]
    with pytest.raises(Unfetched, match="model tiny: no such bucket"):
        opened().bring("tiny")
    opened().bring("tiny").release()
    server.bills = [failed]
    brought = opened().bring("tiny")
    assert brought.note is not None
    brought.release()


def test_a_new_revision_replaces_the_old_and_fetches_what_differs(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    opened().bring("tiny").release()
    later = {**FILES, "config.json": b'{"architectures": ["TinyForCausalLM"], "n": 2}'}
    server.add("tiny", later, revision="r2")
    opened().bring("tiny").release()
    assert contents(tmp_path / "models" / "tiny") == later
    assert server.asked[FILE] == 1


def test_a_bill_with_names_that_lead_out_is_refused(
    opened: Open, server: FileServer
) -> None:
    server.add("tiny", {"../evil": b"x"})
    with pytest.raises(Unfetched, match="evil"):
        opened().bring("tiny")


def test_workers_learn_from_the_catalogue_what_an_administrator_said(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    opened().bring("tiny").release()
    resolver = DepotResolver(tmp_path / "models", {})
    ref = resolver.resolve("tiny")
    assert (ref.folder, str(ref.kind)) == (tmp_path / "models" / "tiny", "generate")
    assert ref.trust_remote_code
    assert list(resolver.names()) == ["tiny"]
    told = {"tiny": {"trust_remote_code": False}}
    assert (
        not DepotResolver(tmp_path / "models", told).resolve("tiny").trust_remote_code
    )


def test_what_the_order_says_is_new_is_asked_for_at_once(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    room = opened()
    first = room.bring("tiny")
    first.release()
    assert first.note is not None
    server.add("tiny", {**FILES, "config.json": b"[]"}, revision="r2", type="llm")
    same = room.bring("tiny", edition=first.note.bill.edition)
    same.release()
    assert same.note == first.note, "nobody was asked"
    other = room.bring("tiny", edition="another")
    other.release()
    assert (tmp_path / "models" / "tiny" / "config.json").read_bytes() == b"[]"


def test_the_same_files_read_otherwise_are_not_fetched_again(
    opened: Open, server: FileServer, tmp_path: Path
) -> None:
    opened().bring("tiny").release()
    told = {"revision": "r1", "type": "llm", "dtype": "float32"}
    server.add("tiny", FILES, **told)
    brought = opened().bring("tiny")
    brought.release()
    assert brought.note is not None
    assert brought.note.bill.dtype == "float32"
    assert server.asked[FILE] == 1
    assert DepotResolver(tmp_path / "models", {}).resolve("tiny").dtype == "float32"
