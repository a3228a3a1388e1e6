"""Joining: the token, the credential it buys, and every way that fails."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from corral.agent.config import AgentConfig
from corral.agent.link import identity
from corral.agent.link.identity import Identity
from corral.errors import ClaimRefused, Unauthenticated, Unreachable
from tests.acceptance.cluster import free_port
from tests.unit.agent.conftest import Running
from tests.unit.agent.standin import NODE, StandInManager

Start = Callable[[AgentConfig], Running]


@pytest.fixture
def folder(config: AgentConfig) -> AgentConfig:
    identity.prepare_folder(config.folder)
    return config


def obtain(config: AgentConfig) -> Identity | None:
    return identity.obtain(config, threading.Event())


def test_a_token_is_exchanged_once_and_the_credential_is_private(
    manager: StandInManager, folder: AgentConfig
) -> None:
    first = obtain(folder)
    assert first == Identity(NODE, manager.key, manager.url)
    assert obtain(replace(folder, join_token=None)) == first
    assert len(manager.joins) == 1
    assert manager.joins[0]["name"] == "n1"
    file = folder.folder / identity.CREDENTIAL
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700


def test_a_wrong_token_says_so_in_one_line(folder: AgentConfig) -> None:
    with pytest.raises(Unauthenticated, match=r"^the manager refused the join token"):
        obtain(replace(folder, join_token="corral_t1_wrong"))


def test_no_token_and_no_credential_asks_for_one(folder: AgentConfig) -> None:
    with pytest.raises(Unauthenticated, match="--token"):
        obtain(replace(folder, join_token=None))


def test_an_unreachable_manager_is_tried_again_and_then_given_up(
    folder: AgentConfig, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match="does not answer"):
        obtain(replace(folder, manager_url=nobody, join_wait_s=1.0))
    assert "trying again" in caplog.text


def test_a_manager_on_another_port_of_the_same_host_is_the_same_manager(
    manager: StandInManager, folder: AgentConfig
) -> None:
    first = obtain(folder)
    moved = replace(folder, manager_url="http://localhost:9", join_token=None)
    assert obtain(moved) == first


def test_a_key_is_never_shown_to_another_host(folder: AgentConfig) -> None:
    obtain(folder)
    elsewhere = replace(folder, manager_url="http://other.example", join_token=None)
    with pytest.raises(Unauthenticated, match="belongs to the manager at"):
        obtain(elsewhere)


def test_a_credential_that_cannot_be_read_is_replaced(
    manager: StandInManager, folder: AgentConfig
) -> None:
    (folder.folder / identity.CREDENTIAL).write_text("{")
    assert obtain(folder) is not None
    assert len(manager.joins) == 1


def test_a_revoked_key_ends_the_agent_with_a_clear_line(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    first = start(config)
    manager.wait_for(lambda: manager.beats)
    first.stop()
    running = start(replace(config, join_token=None))
    manager.wait_for(lambda: len(manager.registrations) == 2)
    manager.key = "corral_n1_other"
    manager.beat_refusal = (401, "unauthenticated")
    running.join()
    assert isinstance(running.error, Unauthenticated)
    assert "join again with a new token" in running.error.message


def test_a_node_that_was_removed_stops_forgets_and_does_not_join_again(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    running = start(config)
    manager.wait_for(lambda: manager.beats)
    manager.key, manager.is_removed = "corral_n1_other", True
    manager.beat_refusal = (401, "unauthenticated")
    running.join()
    assert running.error is None
    assert len(manager.joins) == 1
    assert identity.load(config.folder) is None


def test_a_node_that_claims_too_much_ends_with_a_clear_line(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    message = "this node's join token does not allow it the label(s) zone=trusted"
    manager.register_refusal = (409, "claim_refused", message)
    running = start(config)
    running.join()
    assert isinstance(running.error, ClaimRefused)
    assert running.error.message == message


def test_a_node_the_manager_forgot_joins_again_with_its_token(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    start(config)
    manager.wait_for(lambda: manager.beats)
    manager.key = "corral_n1_other"
    manager.beat_refusal = (404, "node_not_found")
    manager.wait_for(lambda: manager.refused)
    manager.beat_refusal = None
    manager.wait_for(lambda: len(manager.joins) == 2 and manager.beats[-1]["seq"] < 3)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_proxy_that_refuses_in_between_does_not_end_the_agent(
    manager: StandInManager, config: AgentConfig, start: Start, status: int
) -> None:
    running = start(replace(config, beat_s=0.05))
    manager.wait_for(lambda: manager.beats)
    manager.beat_refusal = (status, "")
    manager.wait_for(lambda: len(manager.refused) >= 2)
    manager.beat_refusal = None
    seen = len(manager.beats)
    manager.wait_for(lambda: len(manager.beats) > seen)
    assert running.thread.is_alive()
    assert len(manager.registrations) == 1
