"""Which targets the gateway refuses, in every spelling, and what it pins."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from corral import settings
from corral.cli.serve.config import gateway_config
from corral.core.access.address import read_allowed
from corral.errors import InvalidField, SettingsError
from corral.manager.outbound.address import GatewayConfig, pin

OWN = GatewayConfig(own=(("127.0.0.1", 8002), ("db.internal", 5432)))
OPEN = GatewayConfig(is_exposed=True)

METADATA = [
    "http://169.254.169.254/latest/meta-data",
    "http://169.254.0.1",
    "http://169.254.169.254.:80",
    "http://[::ffff:169.254.169.254]",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
    "http://[::169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://0251.0376.0251.0376/",
    "http://025177524776/",
    "http://169.254.43518/",
    "http://169.16689662/",
    "http://0xa9.254.0251.254/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "https://169.254.169.254/",
    "http://１６９.254.169.254/",
]
NOBODY = [
    "http://0.0.0.0:9000",
    "http://0:9000",
    "http://[::]:9000",
    "http://224.0.0.1",
    "http://255.255.255.255",
    "http://240.0.0.1",
    "http://[ff02::1]",
    "http://0.1.2.3",
]
OURSELVES = [
    "http://127.0.0.1:8002",
    "http://localhost:8002/tasks",
    "http://127.1:8002",
    "http://127.9.9.9:8002",
    "http://2130706433:8002",
    "http://0x7f000001:8002",
    "http://0177.0.0.1:8002",
    "http://[::1]:8002",
    "http://[::ffff:127.0.0.1]:8002",
    "http://LOCALHOST:8002",
    "http://127.0.0.1:5432",
]
NO_URL = [
    "",
    "127.0.0.1:9000",
    "ftp://127.0.0.1/x",
    "file:///etc/passwd",
    "http://",
    "http:///x",
    "http://user:secret@127.0.0.1:9000",
    "http://127.0.0.1:9000/?a=b",
    "http://127.0.0.1:9000/#x",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:0",
    "http://no-such-host.invalid",
    "http://" + "a" * 3000,
    "http://127.0.0.1\r\nX: y",
]


@pytest.mark.parametrize("url", [*METADATA, *NOBODY, *OURSELVES, *NO_URL])
async def test_a_target_nobody_may_reach_is_refused_in_every_spelling(url: str) -> None:
    with pytest.raises(InvalidField) as caught:
        await pin(url, OWN)
    assert caught.value.field == "url"


@pytest.mark.parametrize("url", [*METADATA, *NOBODY, *OURSELVES])
async def test_the_list_of_the_administrator_does_not_lift_those_refusals(
    url: str,
) -> None:
    anything = GatewayConfig(OWN.own, ("0.0.0.0/0", "::/0"), is_exposed=True)
    with pytest.raises(InvalidField) as caught:
        await pin(url, anything)
    assert "CORRAL_GATEWAY_ALLOW" not in caught.value.message


async def test_every_address_of_this_machine_is_ours() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):  # There may be no other network.
            probe.connect(("192.0.2.1", 9))  # Nothing is sent: it only picks a route.
        address = probe.getsockname()[0].replace("0.0.0.0", "127.0.0.2")
    with pytest.raises(InvalidField, match="own servers"):
        await pin(f"http://{address}:8002", OWN)


async def test_an_app_on_this_machine_is_reached_by_a_manager_only_it_can_reach() -> (
    None
):
    pinned = await pin("http://localhost:9000/base", OWN)
    assert pinned.addresses[0] == "127.0.0.1"
    assert set(pinned.addresses) <= {"127.0.0.1", "::1"}
    assert pinned.url.host == "localhost"


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://127.0.0.1:9000", "127.0.0.1"),
        ("http://127.0.0.1:9000", "127.0.0.1:9000"),
        ("http://127.0.0.1:9000", "127.0.0.0/8"),
        ("http://127.0.0.1:9000", "127.0.0.0/8:9000"),
        ("http://localhost:9000", "localhost"),
        ("http://LocalHost:9000", "localhost:9000"),
        ("http://[::1]:9000", "[::1]:9000"),
        ("http://[::1]:9000", "::1"),
        ("http://[::ffff:10.1.2.3]:9000", "10.0.0.0/8"),
        ("https://10.1.2.3", "10.1.2.3:443"),
    ],
)
async def test_an_exposed_manager_reaches_what_is_on_the_list(
    url: str, entry: str
) -> None:
    config = GatewayConfig(allow=("other.host", entry), is_exposed=True)
    assert (await pin(url, config)).addresses


@pytest.mark.parametrize(
    "entry", ["10.0.0.0/8", "127.0.0.1:9001", "localhost", "127.0.0.2", "example.com"]
)
async def test_an_exposed_manager_reaches_nothing_else(entry: str) -> None:
    config = GatewayConfig(allow=(entry,), is_exposed=True)
    with pytest.raises(InvalidField, match="CORRAL_GATEWAY_ALLOW"):
        await pin("http://127.0.0.1:9000", config)
    with pytest.raises(InvalidField, match="CORRAL_GATEWAY_ALLOW"):
        await pin("http://93.184.216.34", OPEN)


def test_entries_of_the_list_are_read_with_and_without_a_port() -> None:
    assert read_allowed("Models.lan.:9000") == ("models.lan", None, 9000)
    assert read_allowed("models.lan") == ("models.lan", None, None)
    assert str(read_allowed("fd00::/8")[1]) == "fd00::/8"
    assert read_allowed("[fd00::1]:80")[2] == 80


def test_a_manager_keeps_away_from_all_servers_it_knows() -> None:
    config = settings.load(
        host="0.0.0.0",
        port=8123,
        allow_plaintext=True,
        manager_url="https://corral.example",
        database_url="postgresql://u:p@db.internal/corral",
        redis_url="redis://:p@cache.internal:7000/0",
        gateway_allow="models.lan:9000, 10.0.0.0/8",
    )
    assert gateway_config(config) == GatewayConfig(
        own=(
            ("0.0.0.0", 8123),
            ("corral.example", 443),
            ("db.internal", 5432),
            ("cache.internal", 7000),
        ),
        allow=("models.lan:9000", "10.0.0.0/8"),
        is_exposed=True,
    )


def test_a_manager_on_loopback_is_not_exposed() -> None:
    assert not gateway_config(settings.load(host="::1")).is_exposed


@pytest.mark.parametrize("wrong", ["http://models.lan", "a b", "*"])
def test_a_list_that_names_no_targets_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="a list of hosts"):
        settings.load(gateway_allow=wrong)
