"""Any command line ends with an exit code and a message, never with a traceback."""

from __future__ import annotations

import random

import pytest

from corral.cli.main import Root
from tests.property_examples import examples
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import Answer, StandIn

# Those start or stop processes, or belong to other files.
OTHERS = {"up", "down", "join", "manager", "agent"}
COMMANDS = [[name] for name in sorted(set(Root.table) - OTHERS)]
COMMANDS += [["job-type", "add"], ["worker", "launch"], ["worker", "stop"], []]
WORDS = [
    *("list", "add", "create", "launch", "stop", "--json", "--limit", "--label"),
    *("--file", "--priority", "--timeout", "--url", "--debug", "-f", "-d", "--", "-"),
    *("", "0", "-1", "1e999", "nan", "{}", "[", "@", "@nowhere", "a=b", "=", "\x00"),
    *("\ud800", "é" * 300, "../..", "ftp://x", "{" * 2000),
]


@pytest.mark.parametrize("seed", range(examples(4, least=2)))
def test_any_words_end_in_order(corral: Corral, manager: StandIn, seed: int) -> None:
    luck = random.Random(seed)
    manager.on("GET /workers", Answer(b"[]"), Answer(b"<html>", 502), {"workers": []})
    for _ in range(30):
        words = luck.choice(COMMANDS) + luck.choices(WORDS, k=luck.randint(0, 4))
        ran = corral(*words, stdin="{}\n")
        # These end as what they run does; 125 is then a failure of our own.
        ours = {125} if words[:1] in (["exec"], ["run"]) else set()
        assert ran.code in {0, 1, 2, 3} | ours, (words, ran)
        if "--debug" not in words:
            assert "Traceback" not in ran.err, (words, ran)
