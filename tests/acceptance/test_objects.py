"""Objects of a real cluster: in its folder and on S3, through client and restarts."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral import AsyncClient
from corral.client.calls.objects import LIMIT_BYTES
from corral.errors import InvalidField, NotFound, TooLarge
from corral.files.tree import load_tree
from tests.acceptance.cluster import Cluster, until
from tests.contract.test_objects import ACCESS, BUCKET, SECRET, S3Server


@pytest.fixture(params=["folder", "s3"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """One that keeps its objects in its data folder, one that keeps them on S3."""
    server = S3Server(tmp_path / "s3")
    environment: dict[str, Any] = {}
    if request.param == "s3":
        server.start()
        environment = {
            "MINDTRACE_CLUSTER__MINIO_ENDPOINT": f"localhost:{server.port}",
            "MINDTRACE_CLUSTER__MINIO_ACCESS_KEY": ACCESS,
            "MINDTRACE_CLUSTER__MINIO_SECRET_KEY": SECRET,
            "MINDTRACE_CLUSTER__MINIO_BUCKET": BUCKET,
        }
    try:
        started = Cluster.start(tmp_path / "home", [], **environment)
        try:
            yield started
        finally:
            started.stop()
    finally:
        server.stop()


def places(cluster: Cluster) -> list[Path]:
    """Every file that is named by a digest."""
    top = cluster.home.parent
    return [p for p in top.rglob("*") if p.is_file() and len(p.name) == 64]


@pytest.mark.timeout(240)
@pytest.mark.spec("E23")
def test_a_folder_travels_through_a_restart_and_is_sent_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg" / "worker.py").write_text("print('hello')\n")
    (source / "noise.bin").write_bytes(os.urandom(5_000_000))
    (source / ".gitignore").write_text("*.bin\n")
    client = cluster.client
    digest = client.upload(source)
    stored = places(cluster)
    assert len(stored) == 3, "two files and the manifest"
    assert digest in {path.name for path in stored}
    for path in stored:
        is_local = path.is_relative_to(cluster.home / "objects" / "blobs")
        assert is_local or path.is_relative_to(tmp_path / "s3" / BUCKET)
    sent_at = [path.stat().st_mtime_ns for path in stored]

    old = cluster.kill("manager")
    until("another manager", lambda: cluster.pid("manager") not in (0, old))
    assert client.upload(source) == digest
    again = [path.stat().st_mtime_ns for path in stored]
    assert again == sent_at, "it was sent a second time"
    found = {f.name: f for f in load_tree(digest, client.download).files}
    assert set(found) == {".gitignore", "pkg/worker.py"}
    (chunk,) = found["pkg/worker.py"].chunks
    assert client.download(chunk) == b"print('hello')\n"

    large = os.urandom(LIMIT_BYTES)
    assert client.download(client.upload(large)) == large
    _check_refusals(cluster, tmp_path)


def _check_refusals(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client
    too_much = bytes(LIMIT_BYTES + 1)
    with pytest.raises(TooLarge):
        client.upload(too_much)
    with pytest.raises(TooLarge):
        client.upload(too_much, limit_bytes=1 << 30)
    with pytest.raises(NotFound):
        client.download(hashlib.sha256(b"never").hexdigest())
    with pytest.raises(InvalidField):
        client.download("not a digest")
    with pytest.raises(NotFound):
        client.download("../../etc/passwd")
    with pytest.raises(InvalidField, match="cannot read"):
        client.upload(tmp_path / "missing")
    answer = httpx.put(f"{cluster.url}/objects/{'0' * 64}", content=b"x")
    assert answer.status_code == 401


@pytest.mark.timeout(240)
def test_awaited_uploads_run_side_by_side(shared: Cluster) -> None:
    async def run() -> list[bytes]:
        async with AsyncClient(shared.url, home=shared.home) as client:
            blobs = [bytes([n]) * 100_000 for n in range(8)]
            digests = await asyncio.gather(*map(client.upload, blobs))
            assert digests == [hashlib.sha256(b).hexdigest() for b in blobs]
            return await asyncio.gather(*map(client.download, digests))

    assert [found[0] for found in asyncio.run(run())] == list(range(8))
