"""Files of one attempt on their way to and from the manager, with the node's key.

Knows neither what they are for nor how the script fares.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from corral.client.calls.objects import ChunkSource, send_tree
from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode
from corral.core.tree import Tree
from corral.errors import Unavailable
from corral.wire.output import KeepRequest
from corral.worker.script.access import ScriptAccess

if TYPE_CHECKING:
    from corral.client.client import Client

ARTIFACTS, CHECKPOINT = "artifacts", "checkpoint"
PATIENCE_S = 30.0
"""How long a manager or an object store that is away is waited for."""
HURRY_S = 45.0
"""What keeping files may take once the task should have ended."""


class _Kept(msgspec.Struct):
    digest: str | None


class TaskFiles:
    """Made for each attempt; connects when something is to be sent or fetched."""

    def __init__(self, access: ScriptAccess, task_id: str, attempt: int) -> None:
        self._access = access
        self._task_id = task_id
        self.attempt = attempt
        self._ends: float | None = None
        self._client: Client | None = None

    def save(
        self, kind: str, tree: Tree, chunks: ChunkSource, left_out: str = ""
    ) -> None:
        """Send what is missing, then have it kept for this attempt.

        Raises:
            Conflict: the attempt is not ours any more, or a file changed meanwhile.
            CorralError: it could not be kept.
        """
        self._connect().drive(self._save(kind, tree, chunks, left_out))

    def _save(
        self, kind: str, tree: Tree, chunks: ChunkSource, left_out: str
    ) -> Flow[None]:
        digest = yield from send_tree(tree, chunks, check=self._check)
        body = KeepRequest(
            task_id=self._task_id,
            attempt=self.attempt,
            kind=kind,
            digest=digest,
            left_out=left_out,
        )
        path = f"/workers/{segment(self._access.worker_id)}/trees"
        yield Request("POST", path, body=encode(body), is_repeatable=True)

    def checkpoint(self) -> str | None:
        """The digest of the tree to go on from."""
        return self._connect().drive(self._find())

    def _find(self) -> Flow[str | None]:
        worker, task = segment(self._access.worker_id), segment(self._task_id)
        path = f"/workers/{worker}/checkpoints/{task}"
        return decode((yield get(path, attempt=self.attempt)), _Kept).digest

    def get(self, digest: str) -> bytes:
        return self._connect().download(digest)

    def hurry(self, seconds: float = HURRY_S) -> None:
        """The task should have ended: what takes longer than this is given up."""
        self._ends = time.monotonic() + seconds

    def _check(self) -> None:
        if self._ends is not None and time.monotonic() > self._ends:
            raise Unavailable("there was no time left to send them")

    def _connect(self) -> Client:
        if self._client is None:
            # Most scripts leave nothing, and need no HTTP client.
            from corral.client.client import Client
            from corral.client.http.retry import Patience

            access = self._access
            self._client = Client(
                access.manager_url,
                access.key,
                ca_file=access.ca_file,
                patience=Patience(PATIENCE_S, PATIENCE_S),
            )
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
