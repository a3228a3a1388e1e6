"""/cluster/simulate: `corral simulate` for those who ask over HTTP; /cluster/journal:
what it can be fed with, what the scheduler was told and decided, as lines of JSON.

A simulation runs in a process of its own, at the lowest rank: the manager has other
things to do. For the same reason neither may hold the loop while it writes lines.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psutil
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import Struct

from corral.api.body import answer, decode
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.errors import BadRequest, Conflict, InvalidField
from corral.process.keep_alive import python_command
from corral.wire.insight import SimulatedScenario

router = APIRouter(tags=["cluster"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
RECENT, SYNTHETIC = "recent", "synthetic"
LIMIT_S = 120.0
_NICE = 15
_LINES = 500
MEDIA = "application/x-ndjson"
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


class SimulateIn(Struct, forbid_unknown_fields=True):
    """As the options of `corral simulate`; `recent` is what the scheduler remembers."""

    workload: str = RECENT
    since_s: float = 86_400.0
    seed: int = 1
    workers: str | None = None
    add: str | None = None
    policy: str | None = None
    load: float = 1.0
    fail: bool = False


class SimulateOut(Struct):
    scenarios: list[SimulatedScenario]


def _described() -> dict[str, Any]:
    """As other routes are, but with lines where those have one JSON value."""
    said = described(dict, errors=(409, 422))
    done = said["openapi_extra"]["responses"]["200"]
    done["content"] = {MEDIA: done["content"].pop("application/json")}
    said["response_class"] = Response
    return said


@router.post(
    "/cluster/simulate",
    summary="Run the scheduler in virtual time and compare",
    **described(
        SimulateOut,
        body=SimulateIn,
        errors=(400, 409, 422),
        example={"workload": "recent", "add": "2x24GB", "load": 2.0},
    ),
)
async def simulate(request: Request, who: Operator) -> Response:
    wanted = decode(await request.body() or b"{}", SimulateIn)
    _check(wanted)
    with _alone(request.app), tempfile.TemporaryDirectory() as folder:
        options = list(_options(wanted))
        if wanted.workload == RECENT:
            path = Path(folder) / "journal.jsonl"
            await _remember(who, wanted.since_s, path)
            options.append(f"--journal={path}")
        who.note("cluster.simulate", wanted.workload)
        found = await _run(options)
    return answer(SimulateOut(found))


@router.get(
    "/cluster/journal",
    summary="What the scheduler was told and decided, to be replayed",
    **_described(),
)
async def journal(
    who: Admin,
    since_s: Annotated[
        float, Query(ge=0, le=1e9, description="at least the last so many seconds")
    ] = 86_400.0,
) -> Response:
    lines = who.manager.insight.journal_since(since_s)
    who.note("journal.read", "cluster")
    return StreamingResponse(_parcels(lines), media_type=MEDIA)


def _check(wanted: SimulateIn) -> None:
    if wanted.workload not in (RECENT, SYNTHETIC):
        raise InvalidField(
            f"workload must be {RECENT} or {SYNTHETIC}", field="workload"
        )
    if not 0.001 <= wanted.load <= 1000:
        raise InvalidField("load must be 0.001 to 1000", field="load")
    if not 0 < wanted.since_s <= 1e9:
        raise InvalidField("since_s must be over 0 and at most 1e9", field="since_s")


def _options(wanted: SimulateIn) -> Iterator[str]:
    for name in ("workers", "add", "policy"):
        if value := getattr(wanted, name):
            yield f"--{name}={value}"
    if wanted.load != 1.0:
        yield f"--load={wanted.load}"
    if wanted.fail:
        yield "--fail"
    if wanted.workload == SYNTHETIC:
        yield f"--synthetic={wanted.seed}"


async def _remember(who: Caller, since_s: float, path: Path) -> None:
    """Some lines at a time: what else there is to do is done between them."""
    lines = who.manager.insight.journal_since(since_s)
    with path.open("wb") as file:
        while parcel := b"".join(islice(lines, _LINES)):
            file.write(parcel)
            await asyncio.sleep(0)


@contextmanager
def _alone(app: FastAPI) -> Iterator[None]:
    """One at a time: two would take the cores of what the cluster is for."""
    if getattr(app.state, "is_simulating", False):
        raise Conflict("a simulation is under way: ask again when it has ended")
    app.state.is_simulating = True
    try:
        yield
    finally:
        app.state.is_simulating = False


async def _run(options: list[str]) -> list[SimulatedScenario]:
    command = python_command("corral", "simulate", "--json", *options)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        psutil.Process(process.pid).nice(_NICE)
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        raise BadRequest(
            f"it took more than {LIMIT_S:.0f} s: choose less, or use the command line"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise BadRequest(_last(err.decode(errors="replace")))
    return msgspec.json.decode(out, type=list[SimulatedScenario])


def _last(text: str) -> str:
    """What the command said was wrong, without how it says so."""
    lines = [line.strip(" │╭╰─╮╯\t") for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith(("Usage", "Try"))]
    return (told[-1] if told else "the simulation failed").removeprefix("Error: ")


async def _parcels(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Some lines at a time: what else there is to do is done between them."""
    while parcel := b"".join(islice(lines, _LINES)):
        yield parcel
        await asyncio.sleep(0)
