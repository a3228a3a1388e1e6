"""Whoever may submit must not have the manager call into its own network."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral import settings
from corral.cli.serve.config import alert_config
from corral.cli.terminal.log import secrets_of
from corral.errors import InvalidField, SettingsError
from corral.log_line import Redaction
from corral.manager.outbound.address import GatewayConfig, NameLookup, pin
from tests.security.conftest import Attacked

GUARDED = GatewayConfig(is_private_listed=True)


def test_m4_webhook_to_a_private_address_asks_for_the_list(attacked: Attacked) -> None:
    """The manager listens on loopback, as it does behind a proxy."""
    hosts = ("127.0.0.1:6379", "localhost:22", "10.1.2.3", "192.168.0.1", "[fd00::1]")
    with attacked.http("submit") as http:
        for host in hosts:
            body = {"task_type": "echo", "notify": f"http://{host}/x"}
            answer = http.post("/tasks", json=body)
            assert answer.status_code == 422, (host, answer.text)
            assert "CORRAL_GATEWAY_ALLOW" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "0x7f.1",
        "2130706433",
        "100.64.0.1",
        "172.16.0.1",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::]",
    ],
)
async def test_m4_private_address_is_known_in_every_spelling(host: str) -> None:
    with pytest.raises(InvalidField, match=r"CORRAL_GATEWAY_ALLOW|no address of one"):
        await pin(f"http://{host}:9000", GUARDED)


async def test_m4_what_is_listed_or_everybodys_is_reached() -> None:
    listed = GatewayConfig(allow=("10.0.0.0/8:9000",), is_private_listed=True)
    assert (await pin("http://10.1.2.3:9000", listed)).addresses == ("10.1.2.3",)
    assert (await pin("http://93.184.216.34", GUARDED)).addresses
    with pytest.raises(InvalidField, match="CORRAL_GATEWAY_ALLOW"):
        await pin("http://10.1.2.3:9001", listed)


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NameLookup]:
    """Names that end in .slow are answered when the test is over."""
    over, plain = threading.Event(), socket.getaddrinfo

    def look(host: str, *more: Any, **named: Any) -> Any:
        if host.endswith(".slow"):
            over.wait(60)
            raise socket.gaierror("gone")
        return plain(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look)
    made = NameLookup(threads=1, most=64, timeout_s=0.2)
    yield made
    over.set()
    while made.under_way:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    made.close()


async def test_m4_slow_names_hold_up_no_other_work(names: NameLookup) -> None:
    """Files are read in the loop's own threads: slow names must not take them all."""
    asked = [pin(f"http://n{number}.slow", GUARDED, names) for number in range(64)]
    tasks = [asyncio.create_task(each) for each in asked]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await asyncio.to_thread(lambda: 1) == 1
        said = await asyncio.gather(*tasks, return_exceptions=True)
    assert all("not resolved within" in str(each) for each in said)
    # Nobody waits any more, and still no thread is free.
    with pytest.raises(InvalidField, match="too many names"):
        await pin("http://n64.slow", GUARDED, names)


def test_l5_receivers_of_alerts_are_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has such a URL can write to its channel."""
    hook = "https://hooks.example/services/T0000/B0000/the-token"
    monkeypatch.setenv("CORRAL_ALERT_WEBHOOKS", f"{hook},{hook}2")
    config = settings.load()
    assert alert_config(config).webhooks == (hook, f"{hook}2")
    # Neither workers nor `corral config`, nor a log that has one of them.
    assert "CORRAL_ALERT_WEBHOOKS" in settings.secret_variables()
    shown = {row.name: row.value for row in config.rows()}["alert_webhooks"]
    assert shown == "hooks.example/********,hooks.example/********"
    hide = Redaction(secrets_of(config))
    line = hide(None, "info", {"event": f"no answer from {hook}2?x=1"})
    assert "the-token" not in str(line)
    monkeypatch.setenv("CORRAL_ALERT_WEBHOOKS", f"ftp{hook}")
    with pytest.raises(SettingsError) as caught:
        settings.load()
    assert "the-token" not in caught.value.message
