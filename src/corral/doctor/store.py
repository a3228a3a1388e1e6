"""PostgreSQL and Redis: those of the settings, or those of the data folder."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from corral.doctor.judge import embedded as judge_embedded
from corral.doctor.judge import store as judge
from corral.doctor.judge.machine import clock
from corral.doctor.judge.store import DATABASE, REDIS, StoreAddress
from corral.doctor.look import embedded
from corral.doctor.look.role import Role
from corral.doctor.result import CheckResult
from corral.errors import EngineUnavailable, StoreUnavailable
from corral.no_answer import NoAnswerReason


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store's URL and the variable it came from."""

    url: str
    setting: str


def database(given: StoreUrl | None, role: Role) -> list[CheckResult]:
    """The database that the settings name, else the one in the data folder."""
    from corral.store.postgres.checkup import examine, place_of

    if given is not None:
        url, place = (
            given.url,
            StoreAddress(DATABASE, place_of(given.url), given.setting),
        )
    elif not role.is_running:
        return [judge_embedded.at_rest(embedded.postgres_at_rest(role.folder))]
    else:
        log = role.folder.logs / "postgres.log"
        place = StoreAddress(DATABASE, str(role.folder.postgres), log=str(log))
        running = embedded.postgres_url(role.folder)
        if running is None:
            said = embedded.last_fatal(log) or "it does not run"
            return [judge.unreachable(place, NoAnswerReason.OTHER, said)]
        url = running
    began = time.time()
    try:
        told = asyncio.run(examine(url))
    except StoreUnavailable as error:
        return [judge.unreachable(place, error.details["silence"], error.message)]
    ended = time.time()
    lines = judge.database(place, told)
    if given is None:
        # One machine, one clock.
        return lines
    ahead_s = told.now.timestamp() - (began + ended) / 2
    return [*lines, clock("the database", ahead_s, (ended - began) / 2)]


def redis(given: StoreUrl | None, role: Role) -> list[CheckResult]:
    """The Redis that the settings name, else the one in the data folder."""
    from corral.engine.celery_app import URL_FILE
    from corral.engine.checkup import examine, place_of

    if given is not None:
        url, place = given.url, StoreAddress(REDIS, place_of(given.url), given.setting)
    elif not role.is_running:
        return [judge_embedded.at_rest(embedded.redis_at_rest(role.folder))]
    else:
        place = StoreAddress(
            REDIS, str(role.folder.redis), log=str(role.folder.logs / "redis.log")
        )
        try:
            url = (role.folder.home / URL_FILE).read_text(encoding="utf-8").strip()
        except OSError as error:
            return [judge.unreachable(place, NoAnswerReason.OTHER, str(error))]
    try:
        return judge.redis(place, examine(url))
    except EngineUnavailable as error:
        return [judge.unreachable(place, error.details["silence"], error.message)]
