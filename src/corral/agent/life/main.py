"""The agent as a whole: who it is, one registration after the other, and its end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from corral import __version__
from corral.agent.config import AgentConfig
from corral.agent.life.breaker import Breakers
from corral.agent.life.heartbeat import BeatIntervals, RegistrationEnd
from corral.agent.life.registration import AgentHooks, NodeNews, Registered, Session
from corral.agent.life.started_workers import WorkerJournal
from corral.agent.life.worker_process import WorkerLaunch, inherited
from corral.agent.link import broker, identity
from corral.agent.link.identity import Identity
from corral.agent.link.model_peers import PeerProcess
from corral.agent.link.tunnel import Tunnel
from corral.agent.watch.gpus import GpuWatch
from corral.agent.watch.owner import OwnerWatch
from corral.agent.watch.sample import Sampler, capabilities
from corral.core.backoff import Backoff
from corral.errors import (
    ClaimRefused,
    CorralError,
    Unauthenticated,
    VersionRefused,
)
from corral.process import group, spawn
from corral.process.keep_alive import Tries
from corral.relay.manager_link import HttpLink
from corral.wire.agent import (
    DeclaredWorker,
    NodeAdmission,
    NodeRegistration,
    RedisAccess,
)

if TYPE_CHECKING:
    from corral.agent.link.node_port import NodePort

LOG = logging.getLogger("corral.agent")
_SAY_EVERY_S = 30.0
_NAMED = 30
# Somebody has to install something before another try makes sense.
_SLOWLY_S = 60.0


def serve(config: AgentConfig) -> int:
    """Run an agent until SIGTERM or SIGINT; a second one does not wait for workers.

    Raises:
        Unauthenticated: the join token or the node's key was refused.
        ClaimRefused: this node says more of itself than its join token allowed.
        Unreachable: no manager answered the join within its time.
        AlreadyRunning: another agent uses this folder, or somebody its port.
    """
    if config.die_with_parent:
        group.die_with_parent(os.getppid(), gently=True)
    agent = Agent(config)
    _heed_signals(agent)
    agent.run()
    return 0


class Agent:
    """One node's agent. `run` returns after `stop`, when all workers are gone."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._folder = config.folder
        self._journal = WorkerJournal(self._folder)
        self._news = NodeNews()
        self._breakers = Breakers(config.breaker, self._news.ring)
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._wake = threading.Event()
        self._tunnel: Tunnel | None = None
        self._is_forgotten = False

    def stop(self) -> None:
        """Finish and leave; called again, leave now. Safe in a signal handler."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        self._wake.set()

    def leave(self, is_forgotten: bool = False) -> None:
        """Somebody asked the manager for our end; asked twice it is still the same.

        A node that is forgotten there must not come with its old key.
        """
        self._is_forgotten = self._is_forgotten or is_forgotten
        if not self._stop.is_set():
            self.stop()

    def run(self) -> None:
        identity.prepare_folder(self._folder)
        with spawn.lock_folder(self._folder):
            # Before anything else: a former self's workers hold tasks and GPUs.
            self._journal.end_orphans()
            with self._port() as face, self._watched():
                who = identity.obtain(self._config, self._stop)
                while who is not None and not self._stop.is_set():
                    if face is not None:
                        face.node_id = who.node_id
                    who = self._serve_as(who)
            if self._is_forgotten:
                identity.forget(self._folder)

    def _port(self) -> AbstractContextManager[NodePort | None]:
        config = self._config
        if config.url is None:
            return nullcontext()
        # Late: most nodes have no port of their own.
        from corral.agent.link.node_port import opened

        return opened(
            config.url,
            config.manager_url,
            config.ca_file,
            allow_plaintext=config.allow_plaintext,
        )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """The watch over this node's GPUs outlives registrations."""
        environment = spawn.child_environment(os.environ, "")
        config, news = self._config, self._news
        gpus = GpuWatch(
            config.gpus, config.name, self._folder, environment, on_news=news.ring_gpus
        )
        owner = OwnerWatch(
            config.owner, lambda: (gpus.latest() or (0, []))[1], on_news=news.ring
        )
        peer = self._peer()
        self._sampler = Sampler(self._folder, gpus, owner, peer)
        gpus.start()
        owner.start()
        if peer is not None:
            peer.start()
        try:
            yield
        finally:
            if peer is not None:
                peer.stop()
            owner.stop()
            gpus.stop()

    def _peer(self) -> PeerProcess | None:
        config, models = self._config, self._config.code.get("model_dir")
        if config.peer_port is None or not models:
            return None
        logs = self._folder / "logs"
        return PeerProcess(
            config.manager_url,
            str(models),
            config.peer_port,
            logs,
            on_news=self._news.ring,
        )

    def _serve_as(self, who: Identity) -> Identity | None:
        """Serve until the key is refused; the next identity, None at the end."""
        url = self._config.manager_url
        link = HttpLink(url, who.key, ca_file=self._config.ca_file)
        try:
            self._serve_registrations(link, who)
        except CorralError as error:
            if not identity.is_refusal(error):
                raise
            if error.details.get("is_removed"):
                LOG.warning("%s", error.message)
                self.leave(is_forgotten=True)
                return None
            return self._join_again(error)
        finally:
            self._close_tunnel()
            link.close()
        return None

    def _join_again(self, error: CorralError) -> Identity | None:
        if self._config.join_token is None:
            raise Unauthenticated(
                f"the manager does not know this node any more ({error.message}); "
                "join again with a new token"
            ) from error
        LOG.warning("the node's key was refused (%s): joining again", error.message)
        return identity.join(self._config, self._stop)

    def _serve_registrations(self, link: HttpLink, who: Identity) -> None:
        hooks = AgentHooks(self._wake, self._config.tick_s, self._news, self.leave)
        while (told := self._register(link, who)) is not None:
            registered = Registered(
                node_id=who.node_id,
                epoch=told.epoch,
                desired=told.desired,
                pace=BeatIntervals.of(told, self._config),
            )
            launch = self._launch(who, told)
            session = Session(link, registered, launch, self._sampler, hooks)
            if session.run(self._stop, self._hurry) is RegistrationEnd.STOPPED:
                return

    def _register(self, link: HttpLink, who: Identity) -> NodeAdmission | None:
        """Register, however long it takes; None when asked to stop meanwhile."""
        path = f"/nodes/{who.node_id}/register"
        tries = Tries(Backoff(0.5, 5.0))
        silent_until = 0.0
        said: type[CorralError] | None = None
        while not self._stop.is_set():
            try:
                told = link.post(path, self._card(), NodeAdmission)
            except CorralError as error:
                if identity.is_refusal(error) or isinstance(error, ClaimRefused):
                    raise
                is_slow = isinstance(error, VersionRefused)
                is_due = not is_slow and time.monotonic() >= silent_until
                if is_due or type(error) is not said:
                    said, silent_until = type(error), time.monotonic() + _SAY_EVERY_S
                    LOG.warning("%s; keeps trying", error.message)
                self._stop.wait(_SLOWLY_S if is_slow else tries.next_s())
            else:
                LOG.info("registered as %s, epoch %s", who.node_id, told.epoch)
                return told
        return None

    def _card(self) -> NodeRegistration:
        return NodeRegistration(
            hostname=socket.gethostname(),
            version=__version__,
            capabilities=capabilities(),
            labels=self._labels(),
            taints=list(self._config.taints),
            workers=[DeclaredWorker.of(spec) for spec in self._config.workers],
            clock=time.time(),
            machine=self._config.machine,
            node_type=self._config.node_type,
        )

    def _labels(self) -> dict[str, str]:
        url = self._config.url
        return {**self._config.labels, **({"url": url} if url else {})}

    def _launch(self, who: Identity, told: NodeAdmission) -> WorkerLaunch:
        ca_file = self._config.ca_file
        line = {
            "node_id": who.node_id,
            "manager_url": self._config.manager_url.rstrip("/"),
            "key": who.key,
            "epoch": told.epoch,
            "redis_url": self._redis_url(who, told.engine),
            "engine": told.engine.to_dict(),
            "ca_file": str(ca_file) if ca_file else None,
            "code": {"cache": str(self._folder / "cache"), **self._config.code},
            "containers": dict(self._config.containers),
            "limits": told.limits.to_dict(),
            "log_level": logging.getLevelName(LOG.getEffectiveLevel()),
            "log_format": self._config.log_format,
            "log_file": str(self._config.worker_log),
            "send_events": self._config.send_events,
            "allow_plaintext": self._config.allow_plaintext,
        }
        return WorkerLaunch(
            argv=self._config.supervisor_argv,
            line=line,
            logs=self._folder / "logs",
            journal=self._journal,
            policy=self._config.child,
            breakers=self._breakers,
            shared_log=self._config.worker_log,
            environment=self._inherited(),
        )

    def _inherited(self) -> dict[str, str]:
        """What workers get of our environment; the others are named, once."""
        # Late: settings are slow to load. Some have names that are not ours alone.
        from corral.settings import plain_variables

        more = (*self._config.worker_env, *plain_variables())
        kept = inherited(os.environ, more)
        if left := sorted(os.environ.keys() - kept.keys()):
            names = ", ".join(left[:_NAMED]) + (", ..." if left[_NAMED:] else "")
            LOG.debug("workers do not get (CORRAL_WORKER_ENV): %s", names)
        return kept

    def _redis_url(self, who: Identity, access: RedisAccess) -> str:
        direct = broker.direct_way(access, self._config.direct_url)
        if direct is not None:
            self._close_tunnel()
            return direct
        if self._tunnel is None:
            self._tunnel = Tunnel(
                self._config.manager_url,
                who.key,
                self._folder,
                ca_file=self._config.ca_file,
            )
            LOG.info("workers reach Redis through the manager")
        return broker.worker_url(self._tunnel.address, access)

    def _close_tunnel(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()
            self._tunnel = None


def _heed_signals(agent: Agent) -> None:
    def heed(_number: int, _frame: FrameType | None) -> None:
        agent.stop()

    signal.signal(signal.SIGTERM, heed)
    signal.signal(signal.SIGINT, heed)
    if hasattr(signal, "SIGBREAK"):
        signal.signal(signal.SIGBREAK, heed)
