"""`corral mcp`: messages go through as they are, and nothing else is printed."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import DROP, Answer, Seen, StandIn, fault

CALL = "POST /mcp-server/mcp"


def message(**more: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **more}) + "\n"


def answers(out: str) -> dict[Any, dict[str, Any]]:
    told = [json.loads(line) for line in out.splitlines()]
    return {each["id"]: each for each in told}


def echo(seen: Seen) -> Answer:
    """As the manager has it: requests are answered, notifications are taken."""
    asked = seen.json
    if "id" not in asked:
        return Answer(b"", 202)
    return Answer({"jsonrpc": "2.0", "id": asked["id"], "result": asked["params"]})


def test_requests_are_answered_and_notifications_are_not(
    manager: StandIn, corral: Corral
) -> None:
    manager.on(CALL, echo)
    asked = [message(id=n, method="ping", params={"n": n}) for n in (1, "two")]
    told = message(method="notifications/initialized")
    ran = corral("mcp", stdin=f"{asked[0]}{told}\n{asked[1]}")
    assert (ran.code, ran.err) == (0, "")
    assert {key: each["result"]["n"] for key, each in answers(ran.out).items()} == {
        1: 1,
        "two": "two",
    }
    assert len(manager.asked(CALL)) == 3
    keys = {seen.headers["authorization"] for seen in manager.seen}
    assert keys == {"Bearer corral_k_s"}


def test_what_goes_wrong_is_an_answer_and_the_agent_can_go_on(
    manager: StandIn, corral: Corral
) -> None:
    manager.on(CALL, fault("unauthenticated", 401, "unknown key"))
    lines = ["no json\n", message(id=1, method="ping"), message(method="a/note")]
    ran = corral("mcp", stdin="".join(lines))
    assert (ran.code, ran.err) == (0, "")
    told = answers(ran.out)
    assert told.keys() == {None, 1}
    assert told[None]["error"]["code"] == -32700
    assert told[1]["error"]["message"] == "unknown key"
    manager.on(CALL, DROP)
    ran = corral("mcp", stdin=message(id=2, method="ping"))
    assert manager.url in answers(ran.out)[2]["error"]["message"]
