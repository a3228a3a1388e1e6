"""Keys that were changed, and keys that somebody guesses."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from corral.core.access.key import Scope, write_key
from corral.errors import SettingsError
from corral.manager.access.rate_limit import RateLimits
from corral.manager.config import ManagerConfig
from corral.settings import load
from tests.acceptance.cluster import CORRAL, clean_environment, free_port
from tests.twins.store import MemoryStore
from tests.unit.api.world import CONFIG, SECRET, Caller, World, fault, running

FIRST, SECOND = "a-first-key-of-settings", "a-second-key-of-settings"
FILE, NEW_FILE = (write_key(name, f"{name}-secret") for name in ("0a1b2c", "3d4e5f"))


async def opens(world: World, *keys: str) -> list[bool]:
    answers = [await Caller(world.http, key).get("/keys") for key in keys]
    return [answer.status_code == 200 for answer in answers]


# changed -----------------------------------------------------------------------


async def test_m1_a_key_that_was_changed_or_removed_opens_nothing() -> None:
    store = MemoryStore()
    texts = (FIRST, SECOND, FILE, NEW_FILE)
    for api_key, file, wanted in (
        (FIRST, FILE, [True, False, True, False]),
        (SECOND, FILE, [False, True, True, False]),
        (SECOND, NEW_FILE, [False, True, False, True]),
        (None, NEW_FILE, [False, False, False, True]),
        (FIRST, NEW_FILE, [True, False, False, True]),
    ):
        async with running(CONFIG, store) as world:
            await world.manager.access.bootstrap(file, api_key)
            assert await opens(world, *texts) == wanted, (api_key, file)


async def test_m1_one_key_at_most_goes_by_the_name_of_its_setting() -> None:
    async with running() as world:
        for text in (FIRST, SECOND):
            await world.manager.access.bootstrap(FILE, text)
        said = await Caller(world.http, FILE).delete("/keys/API_KEY")
        assert said.status_code == 200
        assert await opens(world, FIRST, SECOND) == [False, False]
        # Nobody's own key may look like one, and end with the next start.
        for name in ("API_KEY", "admin"):
            body = {"name": name, "role": "admin"}
            fault(await Caller(world.http, FILE).post("/keys", body), 409, "conflict")


async def test_m1_keys_of_people_stay_when_those_of_settings_change() -> None:
    async with running() as world:
        await world.manager.access.bootstrap(FILE, FIRST)
        _, ann = await world.manager.access.keys.create(Scope.ADMIN, "ann")
        await world.manager.access.bootstrap(NEW_FILE, None)
        assert await opens(world, ann, FILE, FIRST) == [True, False, False]


# guessed -----------------------------------------------------------------------


@pytest.mark.parametrize("weak", ["old", "a" * 40, "corral_0a1b2c_short", "x" * 19])
def test_m2_a_manager_does_not_start_with_a_key_that_can_be_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weak: str
) -> None:
    monkeypatch.setenv("API_KEY", weak)
    with pytest.raises(SettingsError, match="at least 20 characters") as found:
        load().require_strong_key()
    assert weak not in found.value.message
    if weak != "old":
        return
    done = subprocess.run(
        [*CORRAL, "up", "--port", str(free_port())],
        env=clean_environment(CORRAL_HOME=str(tmp_path), API_KEY=weak),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "API_KEY='********'" in line
    assert "token_urlsafe" in line


def test_m2_a_key_of_some_length_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (FIRST, "your-development-api-key", FILE + "and-more-of-it"):
        monkeypatch.setenv("API_KEY", text)
        load().require_strong_key()


async def test_m2_what_a_key_is_called_says_nothing_of_it() -> None:
    """Its id is in lists, cookies and the audit trail."""
    ids = set[str]()
    for secret in (SECRET, b"the secret of another cluster"):
        async with running(ManagerConfig(secret)) as world:
            await world.manager.access.bootstrap(FILE, FIRST)
            rows = (await Caller(world.http, FILE).ask("/keys"))["keys"]
            (found,) = (row["key_id"] for row in rows if row["name"] == "API_KEY")
            ids.add(found)
            cookie = (await Caller(world.http, FIRST).post("/ui/session")).headers
            guess = hashlib.sha256(FIRST.encode()).hexdigest()
            assert guess[:8] not in found
            assert guess[:8] not in cookie["set-cookie"]
    assert len(ids) == 2, "the same key has another id in another cluster"


async def test_m2_whoever_guesses_is_slowed_also_when_a_guess_is_right() -> None:
    config = ManagerConfig(SECRET, limits=RateLimits(failures_per_min=5))
    async with running(config) as world:
        await world.manager.access.bootstrap(FILE, FIRST)
        for number in range(5):
            guess = Caller(world.http, f"guess-{number}")
            fault(await guess.get("/tasks"), 401, "unauthenticated")
        answer = await Caller(world.http, FIRST).get("/tasks")
        fault(answer, 429, "rate_limited")
        assert answer.headers["retry-after"] == "60"
        assert await opens(world, FILE) == [True], "nobody guesses those we make"
        world.clock.step(60)
        assert await opens(world, FIRST) == [True]
