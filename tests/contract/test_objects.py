"""One suite for the object store in a folder, in memory, and on a real S3 server."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.errors import (
    CorruptObject,
    InvalidField,
    NotFound,
    SettingsError,
    StoreUnavailable,
    TooLarge,
)
from corral.settings import load
from corral.store.base import LogChunk
from corral.store.objects import (
    ObjectStore,
    S3Access,
    digest_of,
    in_memory,
    open_objects,
)
from corral.store.postgres.tasks.output import LogFolder
from tests.property_examples import examples

LIMIT = 4 << 20
IDS = ("one", "One", "../up", "é" * 99)
ACCESS, SECRET = "test-access-key", "test-secret-key"
BUCKET = "workers"
RCLONE = Path(sys.executable).parent / "rclone"


@dataclass
class S3Server:
    """`rclone serve s3` over a folder: each folder in it is a bucket."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def access(self) -> S3Access:
        return S3Access(f"127.0.0.1:{self.port}", ACCESS, SECRET)

    def start(self) -> None:
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command: list[Any] = [RCLONE, "serve", "s3", "--config", ""]
        command += ["--addr", f"127.0.0.1:{self.port}", "--vfs-cache-mode", "off"]
        command += ["--auth-key", f"{ACCESS},{SECRET}", self.folder]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "Starting s3 server" in line:
                return
        raise AssertionError("".join(said))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["memory", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return in_memory(LIMIT)
    if request.param == "folder":
        return open_objects(str(tmp_path / "made" / "blobs"), limit_bytes=LIMIT)
    server: S3Server = request.getfixturevalue("s3")
    prefix = f"{tmp_path.name}/deep"
    return open_objects(f"s3://{BUCKET}/{prefix}", server.access, LIMIT)


async def damage(store: ObjectStore, digest: str, data: bytes) -> None:
    """Write something else in an object's place, as a failing disk might."""
    await store._backend.put_async(f"{digest[:2]}/{digest}", data)


async def test_what_was_put_comes_back_under_its_sha256(store: ObjectStore) -> None:
    for data in (b"", b"x", bytes(range(256)) * 5000):
        digest = await store.put(data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert await store.get(digest) == data
        assert await store.exists(digest)
        assert await store.size(digest) == len(data)


async def test_putting_the_same_again_changes_nothing(store: ObjectStore) -> None:
    digests = {await store.put(b"same") for _ in range(3)}
    assert len(digests) == 1
    assert await store.get(digests.pop()) == b"same"


async def test_what_was_never_put_is_not_there(store: ObjectStore) -> None:
    digest = digest_of(b"never")
    assert not await store.exists(digest)
    assert await store.size(digest) is None
    with pytest.raises(NotFound) as caught:
        await store.get(digest)
    assert caught.value.digest == digest


async def test_a_deleted_object_is_gone_and_may_be_deleted_again(
    store: ObjectStore,
) -> None:
    digest = await store.put(b"short-lived")
    await store.delete(digest)
    await store.delete(digest)
    assert not await store.exists(digest)
    with pytest.raises(NotFound):
        await store.get(digest)


async def test_several_are_put_asked_for_and_listed(store: ObjectStore) -> None:
    blobs = [b"%d" % n for n in range(40)] + [b""]
    digests = await store.put_all(blobs)
    assert digests == [digest_of(blob) for blob in blobs]
    never = digest_of(b"never")
    assert await store.missing([*digests, never]) == [never]
    sizes = [len(blob) for blob in blobs]
    assert await store.missing(digests, sizes) == []
    sizes[3] += 1
    assert await store.missing(digests, sizes) == [digests[3]]
    await store._backend.put_async(f"logs/ab/{never}", b"of somebody else")
    before = datetime.now(UTC) - timedelta(minutes=5)
    listed = [row async for batch in store.listed() for row in batch]
    assert sorted(digest for digest, _ in listed) == sorted(digests)
    assert all(at > before for _, at in listed)


async def test_the_start_of_an_object_tells_what_it_may_be(store: ObjectStore) -> None:
    for data in (b"", b"short", b"long" * 100):
        assert await store.start(await store.put(data), 8) == data[:8]
    with pytest.raises(NotFound):
        await store.start(digest_of(b"never"))


async def test_an_object_may_be_as_large_as_the_limit_and_no_larger(
    store: ObjectStore,
) -> None:
    data = b"x" * LIMIT
    assert len(await store.get(await store.put(data))) == LIMIT
    with pytest.raises(TooLarge) as caught:
        await store.put(data + b"x")
    assert caught.value.limit_bytes == LIMIT


async def test_bytes_that_are_not_those_expected_are_not_stored(
    store: ObjectStore,
) -> None:
    wanted = digest_of(b"wanted")
    with pytest.raises(InvalidField, match="not " + wanted):
        await store.put(b"came", wanted)
    assert not await store.exists(wanted)
    assert not await store.exists(digest_of(b"came"))
    assert await store.put(b"wanted", wanted) == wanted


@pytest.mark.parametrize(
    "name",
    ["", "abc", "../../etc/passwd", "A" * 64, "a" * 65, "é" * 64, "a" * 63 + "/"],
)
async def test_a_name_that_is_no_digest_reaches_no_storage(
    store: ObjectStore, name: str
) -> None:
    for call in (store.get, store.exists, store.size, store.delete):
        with pytest.raises(InvalidField) as caught:
            await call(name)
        assert caught.value.field == "digest"
    with pytest.raises(InvalidField):
        await store.put(b"x", name)


@pytest.mark.parametrize(
    "found", [b"Precious", b"preciou", b"", b"x" * (LIMIT + 1)], ids=len
)
async def test_a_damaged_object_is_never_handed_out_and_a_put_mends_it(
    store: ObjectStore, found: bytes
) -> None:
    digest = await store.put(b"precious")
    await damage(store, digest, found)
    with pytest.raises(CorruptObject) as caught:
        await store.get(digest)
    assert (caught.value.digest, caught.value.code) == (digest, "corrupt_object")
    await store.put(b"precious")
    assert await store.get(digest) == b"precious"


async def test_a_folder_damaged_from_outside_is_noticed(tmp_path: Path) -> None:
    store = open_objects(str(tmp_path))
    digest = await store.put(b"precious")
    (tmp_path / digest[:2] / digest).write_bytes(b"pretious")
    with pytest.raises(CorruptObject):
        await store.get(digest)


@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
@given(st.lists(st.binary(max_size=2000), max_size=4))
async def test_any_bytes_come_back_as_they_were(
    store: ObjectStore, blobs: list[bytes]
) -> None:
    digests = [await store.put(blob) for blob in blobs]
    assert [await store.get(digest) for digest in digests] == blobs


async def test_two_stores_on_one_place_see_the_same_objects(
    s3: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/shared"
    for at, access in ((str(tmp_path), None), (url, s3.access)):
        digest = await open_objects(at, access).put(b"told once")
        assert await open_objects(at, access).get(digest) == b"told once"


async def test_a_silent_or_refusing_server_is_an_unavailable_store(
    s3: S3Server,
) -> None:
    place, digest = f"s3://{BUCKET}", digest_of(b"x")
    wrong = S3Access(s3.access.endpoint, ACCESS, "wrong-secret")
    gone = S3Access("127.0.0.1:1", ACCESS, SECRET)
    for access in (wrong, gone):
        store = open_objects(place, access)
        for call in (store.put(b"x"), store.get(digest)):
            with pytest.raises(StoreUnavailable) as caught:
                await call
            assert "\n" not in caught.value.message
            assert SECRET not in caught.value.message


@pytest.mark.parametrize("place", ["http://x/y", "s3://", "s3:///prefix", "ftp://a"])
def test_a_place_of_another_kind_is_refused(place: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used"):
        open_objects(place)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SettingsError, match="cannot be used"):
        open_objects(str(tmp_path / "file" / "blobs"))


def test_an_access_shows_no_secret() -> None:
    assert SECRET not in repr(S3Access("h", ACCESS, SECRET))


def test_the_setting_names_a_folder_or_a_bucket(tmp_path: Path) -> None:
    plain = load(home=tmp_path)
    assert plain.object_store == str(tmp_path / "objects" / "blobs")
    assert load(object_store="s3://b/p", minio_endpoint="h:9000").object_store == (
        "s3://b/p"
    )
    made = load(home=tmp_path, minio_endpoint="h:9000", minio_bucket="mine")
    assert (made.object_store, made.origin("object_store")) == ("s3://mine", "flag")
    for wrong in ("http://h/b", "s3://", "s3:///p"):
        with pytest.raises(SettingsError, match="a folder, or like s3://bucket"):
            load(object_store=wrong)


async def test_log_chunks_lie_beside_the_objects(store: ObjectStore) -> None:
    folder = LogFolder(store)
    digest = await store.put(b"an object")
    chunks = [LogChunk(name, 1, n, f'[{n}, "ü"]') for name in IDS for n in (1, 2)]
    await folder.write(chunks)
    await folder.write(chunks)
    for chunk in chunks:
        assert await folder.read(chunk.task_id, 1, chunk.seq) == chunk.lines
    assert await folder.read("one", 1, 3) is None
    await folder.remove(["one", "never there"])
    assert await folder.read("one", 1, 1) is None
    assert await folder.read("One", 1, 1) == chunks[2].lines
    assert [row async for batch in store.listed() for row, _ in batch] == [digest]
