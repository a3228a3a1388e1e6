"""Models in S3: read once by the manager, fetched by nodes under signed addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.core.models.catalogue import CatalogueModel
from corral.errors import NotFound, StoreUnavailable
from corral.manager.models.sources import SourceConfig, Sources
from corral.wire.models import ManifestFile
from corral.worker.depot.download_file import HttpSource, Transfer
from tests.contract.test_objects import BUCKET, S3Server

WEIGHTS = bytes(range(256)) * 50_000
FILES = {"config.json": b"{}", "deep/model.safetensors": WEIGHTS}
MODEL = CatalogueModel("tiny", source=f"s3://{BUCKET}/models/tiny")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    for name, data in FILES.items():
        path = server.folder / BUCKET / "models" / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        server.start()
        yield server
    finally:
        server.stop()


async def test_a_bucket_is_read_and_its_files_fetched_under_signed_addresses(
    s3: S3Server, tmp_path: Path
) -> None:
    sources = Sources(SourceConfig(s3=s3.access))
    seen: list[tuple[int, int]] = []
    found = await sources.survey(MODEL, lambda done, total: seen.append((done, total)))
    assert {f.name: f.sha256 for f in found.files} == {
        name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()
    }
    size = sum(map(len, FILES.values()))
    assert seen[-1] == (size, size)
    model = CatalogueModel("tiny", source=MODEL.source, files=found.files)
    urls = await sources.urls(model)
    transfer = Transfer("tiny", tmp_path)
    for file in found.files:
        wanted = ManifestFile(name=file.name, size=file.size, sha256=file.sha256)
        transfer.fetch(wanted, [HttpSource(urls[file.name])])
        assert (tmp_path / file.name).read_bytes() == FILES[file.name]
    rest = [p async for p in await sources.open_file(model, found.files[1], 100)]
    assert b"".join(rest) == WEIGHTS[100:]


async def test_an_address_is_good_for_a_part_of_a_file(s3: S3Server) -> None:
    sources = Sources(SourceConfig(s3=s3.access))
    found = await sources.survey(MODEL, lambda done, total: None)
    model = CatalogueModel("tiny", source=MODEL.source, files=found.files)
    way = HttpSource((await sources.urls(model))["deep/model.safetensors"])
    assert b"".join(way.read(5_000_000)) == WEIGHTS[5_000_000:]


async def test_a_bucket_without_files_or_without_a_server_says_so(
    s3: S3Server,
) -> None:
    nothing = CatalogueModel("none", source=f"s3://{BUCKET}/models/none")
    sources = Sources(SourceConfig(s3=s3.access))
    with pytest.raises(NotFound, match="has no files"):
        await sources.survey(nothing, lambda done, total: None)
    s3.stop()
    with pytest.raises(StoreUnavailable):
        await sources.survey(MODEL, lambda done, total: None)
