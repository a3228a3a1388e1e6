"""What an announcement says, and when there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corral import settings
from corral.cli.serve import discovery


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_manager_on_loopback_is_not_announced_and_says_so(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings.load(home=tmp_path, host=host, discovery=True)

    async def serve() -> None:
        async with discovery.announced(config):
            for _ in range(10):
                await asyncio.sleep(0)

    asyncio.run(serve())
    assert f"listens on {host} alone" in caplog.text


def test_a_manager_everywhere_is_announced_with_its_addresses_but_loopback() -> None:
    found = discovery.own_addresses("0.0.0.0")
    assert not [address for address in found if address.startswith("127.")]
    assert discovery.own_addresses("192.0.2.7") == ["192.0.2.7"]


@pytest.mark.parametrize(
    ("told", "url"),
    [
        ({"cluster": "c"}, "http://192.0.2.1:8002"),
        ({"cluster": "c", "tls": "1"}, "https://192.0.2.1:8002"),
        ({"cluster": "c", "url": "https://corral.lan"}, "https://corral.lan"),
    ],
)
def test_the_address_is_the_one_announced_or_where_it_came_from(
    told: dict[str, str], url: str
) -> None:
    found = discovery.read(told, ["192.0.2.1"], 8002)
    assert found is not None
    assert (found.url, found.cluster) == (url, "c")


@pytest.mark.parametrize(
    "told",
    [{"url": "file:///etc/passwd"}, {"cluster": "a\x1b[2Jb"}, {"url": "http://"}],
)
def test_what_makes_no_sense_is_left_out(told: dict[str, str]) -> None:
    assert discovery.read(told, ["192.0.2.1"], 8002) is None
