from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from corral.errors import EnvironmentFailed
from corral.worker.environments.cache import Cache, CacheDraft, CacheEntry, key_of
from tests.unit.worker.environments.repository import left_behind

BUILDER = """
import sys
from pathlib import Path
from corral.worker.environments.cache import Cache

def build(draft):
    draft.path.mkdir()
    (draft.path / "half").write_text("")
    print("building", flush=True)
    sys.stdin.read()

cache = Cache(Path(sys.argv[1]), 1 << 30)
with cache.scratch() as place:
    (place / "file").write_text("")
    cache.hold("tree", "key", build, timeout_s=60.0)
"""


def never(draft: CacheDraft) -> None:
    raise AssertionError(draft)


def fill(draft: CacheDraft, size: int = 4096) -> None:
    draft.path.mkdir()
    (draft.path / "file").write_bytes(b"x" * size)


def hold(cache: Cache, key: str, size: int = 4096) -> CacheEntry:
    return cache.hold("tree", key, lambda draft: fill(draft, size), timeout_s=60.0)


def test_the_second_finds_what_the_first_built(cache: Cache) -> None:
    with hold(cache, "key") as first:
        assert first.was_built
    with cache.hold("tree", "key", never, timeout_s=60.0) as second:
        assert not second.was_built
        assert second.path == first.path
    assert cache.counters()["hits"] == 1


def test_many_at_once_build_once(cache: Cache) -> None:
    built = []
    gate = threading.Barrier(8)

    def build(draft: CacheDraft) -> None:
        built.append(draft)
        fill(draft)

    def use() -> None:
        gate.wait()
        with cache.hold("venv", "key", build, timeout_s=30.0) as entry:
            assert (entry.path / "file").exists()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert cache.counters()["hits"] == 7


def test_a_failed_build_leaves_nothing_and_is_tried_again(cache: Cache) -> None:
    def build(draft: CacheDraft) -> None:
        fill(draft)
        raise EnvironmentFailed("no")

    with pytest.raises(EnvironmentFailed, match="no"):
        cache.hold("tree", "key", build, timeout_s=60.0)
    assert left_behind(cache) == []
    assert not list((cache.folder / "locks").glob("tree.*"))
    hold(cache, "key").release()


def test_what_a_killed_builder_left_is_removed_and_built_anew(cache: Cache) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(cache.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == b"building\n"
        builder.kill()
    assert len(left_behind(cache)) == 2
    with hold(cache, "key") as entry:
        assert [path.name for path in entry.path.iterdir()] == ["file"]
    cache.sweep()
    assert left_behind(cache) == ["tree/key"]


def test_eviction_removes_what_a_killed_builder_left(cache: Cache) -> None:
    (cache.folder / "venv" / "key" / "content").mkdir(parents=True)
    cache.evict()
    assert left_behind(cache) == []
    assert cache.counters()["evictions"] == 0


def test_waiting_for_another_builder_ends(cache: Cache) -> None:
    with cache.change("git", "key", timeout_s=60.0) as draft:
        fill(draft)
        with pytest.raises(EnvironmentFailed, match="another process"):
            cache.hold("git", "key", never, timeout_s=0.05)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1_300_000)
    for number, key in enumerate("abc"):
        hold(cache, key, 400_000).release()
        os.utime(tmp_path / "tree" / key / "done", (number, number))
    hold(cache, "a").release()
    hold(cache, "d", 400_000).release()
    assert left_behind(cache) == ["tree/a", "tree/c", "tree/d"]
    assert cache.counters()["evictions"] == 1
    assert cache.size_bytes() <= cache.limit_bytes


def test_what_is_in_use_is_never_evicted(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 500_000)
    with hold(cache, "a", 400_000) as used, hold(cache, "b", 400_000):
        assert used.path.exists()
        assert left_behind(cache) == ["tree/a", "tree/b"]
    cache.evict()
    assert left_behind(cache) == ["tree/b"]


def test_an_entry_that_cannot_be_used_any_more_is_built_anew(cache: Cache) -> None:
    with hold(cache, "key") as entry:
        (entry.path / "file").unlink()

    def is_usable(place: Path) -> bool:
        return (place / "file").exists()

    again = cache.hold("tree", "key", fill, timeout_s=60.0, is_usable=is_usable)
    assert again.was_built
    again.release()


def test_a_failed_change_keeps_what_was_there(cache: Cache) -> None:
    with cache.change("git", "key", timeout_s=60.0) as draft:
        assert draft.is_new
        fill(draft)

    def fail() -> None:
        with cache.change("git", "key", timeout_s=60.0) as again:
            assert not again.is_new
            raise EnvironmentFailed("no")

    with pytest.raises(EnvironmentFailed):
        fail()
    assert (draft.path / "file").exists()


def test_a_scratch_folder_is_gone_after_a_failure(cache: Cache) -> None:
    def fail() -> None:
        with cache.scratch() as place:
            (place / "file").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert left_behind(cache) == []
    assert list((cache.folder / "locks").iterdir()) == []


def test_sweeping_leaves_the_folders_of_the_living(cache: Cache) -> None:
    with cache.scratch() as place:
        cache.sweep()
        assert place.exists()


def test_counters_of_many_add_up_and_survive(cache: Cache) -> None:
    def add() -> None:
        for _ in range(20):
            cache.count("clones")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Cache(cache.folder, 1).counters()["clones"] == 80


def test_a_damaged_counter_file_starts_again(cache: Cache) -> None:
    cache.count("clones")
    (cache.folder / "counters.json").write_text("{")
    cache.count("clones")
    assert cache.counters()["clones"] == 1


def test_keys_tell_apart_where_one_text_ends() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of("a") == key_of("a")


def locks(cache: Cache) -> set[str]:
    return {path.name for path in (cache.folder / "locks").iterdir()}


def test_a_sweep_removes_all_that_a_killed_builder_left(cache: Cache) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(cache.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == b"building\n"
        cache.sweep()
        assert "tree/key" in left_behind(cache), "somebody was at work on it"
        builder.kill()
    cache.sweep()
    assert left_behind(cache) == []
    assert locks(cache) <= {"counters.all"}


def test_a_sweep_forgets_locks_on_nothing_and_leaves_those_that_are_held(
    cache: Cache,
) -> None:
    with hold(cache, "key"), cache.scratch() as place:
        (cache.folder / "locks" / "work.gone").touch()
        (cache.folder / "locks" / "git.gone").touch()
        cache.sweep()
        held = {"tree.key", f"work.{place.name}"}
        assert locks(cache) - {"counters.all"} == held


def test_a_killed_fetch_leaves_no_mark_on_an_entry_that_is_whole(cache: Cache) -> None:
    hold(cache, "key").release()
    busy = cache.folder / "tree" / "key" / "busy"
    busy.touch()
    cache.sweep()
    assert not busy.exists()
    assert left_behind(cache) == ["tree/key"]


def test_a_daemon_that_a_build_leaves_ends_with_the_build(cache: Cache) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def build(draft: CacheDraft) -> None:
        fill(draft)
        marked = {**os.environ, "CORRAL_BUILD": str(draft.path)}
        sleep = ["sleep", "600"]
        daemon = subprocess.Popen(sleep, env=marked, start_new_session=True)
        started.append(daemon)
        # For a moment after its start the kernel does not show its variables yet.
        while "CORRAL_BUILD" not in psutil.Process(daemon.pid).environ():
            threading.Event().wait(0.01)

    cache.hold("tree", "key", build, timeout_s=60.0).release()
    assert started[0].wait(60) == -9
