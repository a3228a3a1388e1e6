"""The sequence of `corral up`: stores, manager, agent, then watch; and back again.

Configuration reaches the children by their environment, secrets never by arguments.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from corral import __version__
from corral.agent.config import AgentConfig
from corral.cli.up import address
from corral.cli.up.manager_api import LocalManager
from corral.cli.up.options import Options
from corral.cli.up.supervise import ChildSupervisor, Interrupted, SignalWatch
from corral.embedded.folder import (
    Folder,
    FolderLock,
    FolderState,
    clear_state,
    load_state,
    save_state,
)
from corral.embedded.server import StoreServer
from corral.errors import Unreachable
from corral.process.keep_alive import Child, ChildPlan, Command
from corral.process.spawn import ProcessIdentity, end, identity_of

if TYPE_CHECKING:
    from corral.settings import Settings

STORE_START_S, MANAGER_START_S, WORKER_START_S = 300.0, 60.0, 15.0
STORE_DEATHS = 4
STORES = ("postgres", "redis")
AGENT_HURRY_S, AGENT_STOP_S, MANAGER_STOP_S, STORE_STOP_S = 2.0, 5.0, 6.0, 10.0
NODE_NAME = "local"
CREDENTIAL = "credential.json"
INTERRUPTED = 130


def run_cluster(options: Options) -> int:
    """Run a cluster until it is told to stop; returns the exit code.

    Raises:
        AlreadyRunning: the folder or the port is taken.
        Unavailable: a database or Redis given by the user does not answer.
        CorralError: a part cannot be started.
    """
    settings = options.load()
    settings.require_loopback_or_tls()
    settings.require_strong_key()
    settings.require_encrypted_database()
    folder = Folder(settings.home.absolute())
    folder.make()
    lock = FolderLock(folder)
    lock.take()
    try:
        end_orphans(folder)
        address.require_free(settings.host, settings.port)
        return LocalCluster(options, settings, folder).run()
    finally:
        lock.release()


def end_orphans(folder: Folder) -> None:
    """Stop what a killed parent left behind: nobody else may run on this folder."""
    state = load_state(folder)
    for name, known in reversed(list((state.children if state else {}).items())):
        number = signal.SIGINT if name == "postgres" else signal.SIGTERM
        end(known, number, STORE_STOP_S)
    clear_state(folder)


class LocalCluster:
    """The parts on this machine, from the first store to the last stop."""

    def __init__(self, options: Options, settings: Settings, folder: Folder) -> None:
        self._options, self._settings, self._folder = options, settings, folder
        self._bell = SignalWatch(folder.run / "stop")
        self._supervisor = ChildSupervisor(
            self._bell, folder.logs, self._save, is_verbose=options.verbose
        )
        self._is_ready = False
        self._url = address.url_of(
            settings.host, settings.port, is_tls=settings.ssl_cert_path is not None
        )
        self._manager = LocalManager(
            self._url, folder.admin_key, settings.ssl_cert_path
        )

    def run(self) -> int:
        with self._bell.listening():
            try:
                self._start()
                self._supervisor.run()
                self._drain()
                return 0
            except Interrupted:
                return INTERRUPTED
            finally:
                self._supervisor.stop()
                self._folder.drop_sockets()
                clear_state(self._folder)

    def _start(self) -> None:
        stores = self._add_stores()
        started = list(self._supervisor.children)
        # The manager waits for its stores by itself: its imports take as long as they.
        manager = self._add_manager(stores)
        for child in started:
            self._supervisor.await_ready(
                child, STORE_START_S, deaths_allowed=STORE_DEATHS
            )
        patience = self._settings.wait_for_stores_s + MANAGER_START_S
        self._supervisor.await_ready(manager, patience)
        if self._options.workers:
            self._start_agent()
        if self._settings.celery_ingress:
            self._add_ingress(stores)
        # Before the state says so: whoever started us detached shows what we said.
        typer.echo(address.banner(self._settings, self._url))
        self._is_ready = True
        self._save()

    def _add_stores(self) -> dict[str, str]:
        """Start those that were not given; what the manager must know of them."""
        told: dict[str, str] = {}
        server: StoreServer
        # Both start side by side; PostgreSQL first, since it is to be stopped last.
        if self._settings.database_url is None:
            from corral.embedded.postgres import open_postgres

            server = open_postgres(self._folder)
            self._add_store(server)
            told["CORRAL_DATABASE_URL"] = server.url
        if self._settings.redis_url is None:
            from corral.embedded.redis import open_redis

            server = open_redis(self._folder)
            self._add_store(server)
            told["CORRAL_REDIS_URL"] = server.url
        if len(told) == len(STORES):
            told["CORRAL_WAIT_FOR_STORES_S"] = str(STORE_START_S)
        return told

    def _add_store(self, server: StoreServer) -> None:
        if server.warning:
            typer.echo(f"Warning: {server.warning}", err=True)
        self._supervisor.add(
            ChildPlan(
                server.name,
                server.prepare,
                server.is_ready,
                server.stop_signal,
                STORE_STOP_S,
            )
        )

    def _add_manager(self, stores: Mapping[str, str]) -> Child:
        env = {**os.environ, **self._variables(), **stores}
        # It need not stand in as this machine's node when an agent will be that.
        env["CORRAL_AGENT_WORKERS"] = json.dumps(self._options.workers)
        command = Command(self._options.manager_argv, env)
        return self._supervisor.add(
            ChildPlan(
                "manager",
                lambda deaths: command,
                self._manager.is_healthy,
                stop_s=MANAGER_STOP_S,
            )
        )

    def _start_agent(self) -> None:
        plan = ChildPlan(
            "agent",
            self._agent_command,
            self._manager.has_online_worker,
            stop_s=AGENT_STOP_S,
            hurry_s=AGENT_HURRY_S,
        )
        child = self._supervisor.add(plan)
        begun = time.monotonic()
        while not self._manager.has_online_worker():
            if self._bell.is_stopping:
                raise Interrupted
            if time.monotonic() - begun > WORKER_START_S:
                typer.echo(f"no worker is online yet: see {child.log}", err=True)
                return
            self._supervisor.tick()
            self._bell.wait(0.1)

    def _agent_command(self, deaths: int) -> Command:
        """The agent keeps its own credential; until it has one it gets a token."""
        name = self._settings.node_name or NODE_NAME
        env = {**os.environ, **self._variables()}
        env |= {"CORRAL_MANAGER_URL": self._url, "CORRAL_NODE_NAME": name}
        folder = AgentConfig(self._url, self._folder.home, name).folder
        has_credential = (folder / CREDENTIAL).exists()
        # A database that was exchanged does not know the credential it once gave.
        if deaths or not has_credential:
            try:
                env["CORRAL_JOIN_TOKEN"] = self._manager.join_token()
            except Unreachable:
                if not has_credential:
                    raise
        env["CORRAL_AGENT_WORKERS"] = json.dumps(self._options.workers)
        return Command(self._options.agent_argv, env)

    def _add_ingress(self, stores: Mapping[str, str]) -> None:
        env = {**os.environ, **self._variables(), **stores}
        command = Command(
            self._options.ingress_argv, env | {"CORRAL_MANAGER_URL": self._url}
        )
        self._supervisor.add(ChildPlan("ingress", lambda deaths: command))

    def _variables(self) -> dict[str, str]:
        given = {**self._options.flags(), "home": self._folder.home}
        return {
            f"CORRAL_{name.upper()}": str(value).lower()
            if isinstance(value, bool)
            else str(value)
            for name, value in given.items()
        }

    def _drain(self) -> None:
        """Let running tasks finish; another signal ends the wait."""
        if not self._options.drain:
            return
        asked, give_up_at = self._bell.requests, time.monotonic()
        give_up_at += self._settings.drain_timeout_s
        try:
            while (running := self._manager.drain()) and self._bell.requests == asked:
                if time.monotonic() > give_up_at:
                    typer.echo(f"{running} tasks still run; they go back", err=True)
                    return
                self._supervisor.tick()
                self._bell.wait(0.3)
        except Unreachable as error:
            typer.echo(f"cannot drain: {error.message}", err=True)

    def _save(self) -> None:
        children = {
            child.name: known
            for child in self._supervisor.children
            if child.process and (known := identity_of(child.process.popen.pid))
        }
        parent = identity_of(os.getpid()) or ProcessIdentity(os.getpid(), 0.0)
        shown = self._settings.ssl_cert_path
        save_state(
            self._folder,
            FolderState(
                parent,
                self._url,
                __version__,
                self._is_ready,
                children,
                str(shown.absolute()) if shown else None,
            ),
        )
