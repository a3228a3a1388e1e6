"""Who this node is: its folder and its credential, got once for a join token."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from corral.agent.config import AgentConfig
from corral.core.backoff import Backoff
from corral.errors import (
    CorralError,
    Forbidden,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from corral.process.keep_alive import Tries
from corral.relay.manager_link import HttpLink
from corral.trust import is_this_machine
from corral.wire.agent import JoinRequest, NodeCredential

LOG = logging.getLogger("corral.agent")
CREDENTIAL = "credential.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """A node's own credential; `manager_url` is where it was issued."""

    node_id: str
    key: str = field(repr=False)
    manager_url: str


def prepare_folder(folder: Path) -> None:
    """Make the agent's folder, open to its user alone."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; it is 0600 from its first byte."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def load(folder: Path) -> Identity | None:
    """The stored credential; None when there is none that can be read."""
    try:
        kept = json.loads((folder / CREDENTIAL).read_text(encoding="utf-8"))
        return Identity(
            str(kept["node_id"]), str(kept["key"]), str(kept["manager_url"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        LOG.warning("the stored credential cannot be read: %s", error)
        return None


def save(folder: Path, identity: Identity) -> None:
    write_private(folder / CREDENTIAL, json.dumps(asdict(identity)))


def forget(folder: Path) -> None:
    """This machine is no node any more."""
    (folder / CREDENTIAL).unlink(missing_ok=True)
    LOG.info("this machine has left the cluster")


def obtain(config: AgentConfig, stop: threading.Event) -> Identity | None:
    """The stored credential, or one got with the join token.

    None when `stop` was set while waiting.

    Raises:
        Unauthenticated: no credential, and no token or a refused one.
        Unreachable: the manager did not answer within `join_wait_s`.
    """
    kept = load(config.folder)
    if kept is not None:
        if _same_host(kept.manager_url, config.manager_url):
            return kept
        # A key is shown to the host that issued it and to no other.
        if config.join_token is None:
            raise Unauthenticated(
                f"this node belongs to the manager at {kept.manager_url}; "
                f"to move it to {config.manager_url} give a join token"
            )
    return join(config, stop)


def join(config: AgentConfig, stop: threading.Event) -> Identity | None:
    """Exchange the join token for this node's own credential and keep it."""
    if not config.join_token:
        raise Unauthenticated(
            "this node has no credential yet: give a join token (--token)"
        )
    link = HttpLink(config.manager_url, config.join_token, ca_file=config.ca_file)
    try:
        identity = _ask(config, link, stop)
    finally:
        link.close()
    if identity is not None:
        save(config.folder, identity)
        LOG.info("joined %s as node %s", config.manager_url, identity.node_id)
    return identity


def _ask(config: AgentConfig, link: HttpLink, stop: threading.Event) -> Identity | None:
    give_up_at = time.monotonic() + config.join_wait_s
    tries = Tries(Backoff(0.5, 5.0))
    body = JoinRequest(hostname=socket.gethostname(), name=config.name)
    while not stop.is_set():
        try:
            told = link.post("/nodes/join", body, NodeCredential)
            return Identity(told.node_id, told.key, config.manager_url)
        except (Unauthenticated, Forbidden) as error:
            raise Unauthenticated(
                f"the manager refused the join token: {error.message}"
            ) from error
        except (Unavailable, RateLimited) as error:
            delay = tries.next_s()
            if time.monotonic() + delay > give_up_at:
                raise
            LOG.warning("%s; trying again in %.1f s", error.message, delay)
            stop.wait(delay)
    return None


def is_refusal(error: CorralError) -> bool:
    """Does the manager no longer know this node or its key?

    The same words from a proxy in between are no reason to give up all work.
    """
    refused = isinstance(error, Unauthenticated | Forbidden | NotFound)
    return refused and bool(error.details.get("is_ours"))


def _same_host(one: str, other: str) -> bool:
    if is_this_machine(one) and is_this_machine(other):
        return True
    return urlsplit(one).hostname == urlsplit(other).hostname
