"""Fetching what tasks left: whole or not at all, and nowhere but below the folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from corral.client import Client
from corral.core.tree import CHUNK_BYTES
from corral.errors import Conflict, NotFound, Unavailable
from tests.unit.client.stand_in import Answer, Seen, StandIn


def leave(manager: StandIn, files: dict[str, bytes], **more: Any) -> None:
    """Let task t1 have left these."""
    rows = [
        {"name": n, "size": len(d), "digest": hashlib.sha256(d).hexdigest()}
        for n, d in files.items()
    ]
    manager.on(
        "GET /tasks/t1/artifacts",
        {"task_id": "t1", "attempt": 2, "artifacts": rows, **more},
    )

    def part(data: bytes) -> Any:
        def answer(seen: Seen) -> Answer:
            first, _, last = seen.headers["range"][6:].partition("-")
            return Answer(data[int(first) : int(last) + 1], 206)

        return answer

    for name, data in files.items():
        manager.on(f"GET /tasks/t1/artifacts/{quote(name, safe='/')}", part(data))


def fetched(manager: StandIn) -> list[Seen]:
    return [s for s in manager.seen if s.path.startswith("/tasks/t1/artifacts/")]


def test_files_come_in_parts_and_are_checked(
    manager: StandIn, client: Client, tmp_path: Path
) -> None:
    large = os.urandom(CHUNK_BYTES + 10)
    leave(manager, {"a/b.txt": b"hi", "large": large, "none": b""}, left_out="x")
    seen: list[tuple[int, int | None]] = []
    paths = client.download_artifacts(
        "t1", to=tmp_path / "to", on_progress=lambda *done: seen.append(done)
    )
    assert paths == [tmp_path / "to" / n for n in ("a/b.txt", "large", "none")]
    assert [p.read_bytes() for p in paths] == [b"hi", large, b""]
    assert [s.query for s in fetched(manager)] == [{"attempt": "2"}] * 3
    assert seen[-1] == (len(large) + 2, len(large) + 2)
    assert client.artifacts("t1").left_out == "x"
    manager.seen.clear()
    assert client.download_artifacts("t1", to=tmp_path / "to") == paths
    assert fetched(manager) == [], "what is there is not fetched again"


def test_a_file_changed_on_its_way_does_not_replace_the_one_there(
    manager: StandIn, client: Client, tmp_path: Path
) -> None:
    leave(manager, {"a": b"right"})
    manager.on("GET /tasks/t1/artifacts/a", Answer(b"wrong", 206))
    (tmp_path / "a").write_bytes(b"mine!")
    with pytest.raises(Unavailable, match="changed on its way"):
        client.download_artifacts("t1", to=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"mine!"


@pytest.mark.parametrize(
    "name", ["../out", "/etc/x", "a/../../out", "a//b", ".", "a\0b", ""]
)
def test_no_name_leads_out(
    manager: StandIn, client: Client, tmp_path: Path, name: str
) -> None:
    leave(manager, {name: b"evil"})
    to = tmp_path / "deep" / "to"
    with pytest.raises(Conflict, match="cannot be written below"):
        client.download_artifacts("t1", to=to)
    assert not list(tmp_path.rglob("out"))


def test_no_link_on_the_way_is_followed(
    manager: StandIn, client: Client, tmp_path: Path
) -> None:
    leave(manager, {"a/b": b"evil"})
    outside, to = tmp_path / "outside", tmp_path / "to"
    outside.mkdir()
    to.mkdir()
    (to / "a").symlink_to(outside)
    with pytest.raises(Conflict, match="is a link"):
        client.download_artifacts("t1", to=to)
    assert not list(outside.iterdir())
    leave(manager, {"c": b"evil"})
    (to / "c").symlink_to(outside / "target")
    with pytest.raises(Conflict, match="is a link"):
        client.download_artifacts("t1", to=to)
    leave(manager, {"d": b"x"})
    (to / "d").mkdir()
    with pytest.raises(Conflict, match="is a folder"):
        client.download_artifacts("t1", to=to)


def test_odd_names_are_names(manager: StandIn, client: Client, tmp_path: Path) -> None:
    files = {"ünï/ code ?#%&.txt": b"1", "-rf": b"2", "…\u202e": b"3"}
    leave(manager, files)
    paths = client.download_artifacts("t1", to=tmp_path)
    assert [p.read_bytes() for p in paths] == [b"1", b"2", b"3"]


def test_one_file_may_be_asked_for_by_name(
    manager: StandIn, client: Client, tmp_path: Path
) -> None:
    leave(manager, {"a": b"1", "b": b"2"})
    assert client.download_artifacts("t1", "b", to=tmp_path) == [tmp_path / "b"]
    with pytest.raises(NotFound, match="left no file 'c'"):
        client.download_artifacts("t1", "c", to=tmp_path)
    assert json.dumps(client.artifacts("t1").to_dict())
