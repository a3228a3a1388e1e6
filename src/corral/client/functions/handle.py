"""What `f.submit(x)` returns, and the client it goes through."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.client.client import AsyncClient, Client


class LazyClient:
    """The client that calls go through, made when it is first needed."""

    def __init__(self, client: Client | None = None) -> None:
        self._given = client
        self._made: tuple[int, Client] | None = None
        self._lock = threading.Lock()

    def blocking(self) -> Client:
        if self._given is not None:
            return self._given
        from corral.client.client import Client

        with self._lock:
            # A connection must not be shared with a process forked off this one.
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), Client())
            return self._made[1]

    @asynccontextmanager
    async def awaiting(self) -> AsyncIterator[AsyncClient]:
        """One for this call: it belongs to the event loop that runs now."""
        from corral.client.client import AsyncClient

        twin = self.blocking()
        target, ca_file = twin._target, twin._ca_file
        async with AsyncClient(
            target.url, target.api_key or "", ca_file=ca_file or target.ca_file
        ) as client:
            yield client


class Handle:
    """A call on its way; every call of a client takes it as a task too."""

    def __init__(self, task_id: str, link: LazyClient) -> None:
        self.task_id = task_id
        self._link = link

    def __repr__(self) -> str:
        return f"Handle({self.task_id!r})"

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned; waits for it.

        Raises:
            TaskFailed: it did not complete; has `.kind` and `.traceback`.
            TimeoutError: it has not ended after `timeout` seconds.
        """
        from corral.client.functions.map import result_of_call

        return self._link.blocking().drive(result_of_call(self.task_id, timeout))

    async def aresult(self, timeout: float | None = None) -> Any:
        """`result`, awaited."""
        from corral.client.functions.map import result_of_call

        async with self._link.awaiting() as client:
            return await client.drive(result_of_call(self.task_id, timeout))

    def status(self) -> str:
        """queued, running, completed, failed, error, cancelled or timed_out."""
        return self._link.blocking().get_task(self.task_id).status

    async def astatus(self) -> str:
        """`status`, awaited."""
        async with self._link.awaiting() as client:
            return (await client.get_task(self.task_id)).status

    def cancel(self) -> None:
        """Stop it, running or not. Raises Conflict when it had ended."""
        self._link.blocking().cancel(self.task_id)

    async def acancel(self) -> None:
        """`cancel`, awaited."""
        async with self._link.awaiting() as client:
            await client.cancel(self.task_id)
