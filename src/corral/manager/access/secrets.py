"""Named secrets: set, listed and removed by people, given to attempts that name them.

Values are sealed in memory and in the store, opened for an attempt at its start, and
kept open nowhere. The seal knows neither store nor callers.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from corral.core.access.secret import Secret, check_secret
from corral.core.tasks.script import JOB_TYPE, read_script
from corral.core.tasks.task import Task, TaskSpec
from corral.errors import Conflict, InvalidField, NotFound
from corral.manager.cluster.state import WorkerLink
from corral.manager.context import ManagerContext

log = logging.getLogger(__name__)
_VERSION = "1:"
_PURPOSE = b"corral: named secrets"
_KEY_BYTES = 32
_NONCE_BYTES = 12


class Unsealable(Exception):
    """The key is another one, or what was stored has been changed."""


class NamedSecrets:
    """Every secret, sealed, in memory; every change is written through."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._clock = ctx.clock
        self._seal = Seal(ctx.secret)
        self._secrets: dict[str, Secret] = {}

    async def load(self) -> None:
        """Read them, and say which of them cannot be opened here."""
        self._secrets = {s.name: s for s in await self._store.access.secrets()}
        for name in self._secrets:
            try:
                self._open(name)
            except Conflict as error:
                log.error("%s", error.message)

    def known(self) -> Sequence[Secret]:
        """All of them, by name."""
        return [self._secrets[name] for name in sorted(self._secrets)]

    async def put(
        self, name: str, value: str, job_types: Iterable[str] = ()
    ) -> tuple[Secret, bool]:
        """Keep a value under a name; attempts that start from now on get it.

        Returns:
            The secret, and whether the name is new.
        """
        check_secret(name, value)
        now = self._clock.now()
        former = self._secrets.get(name)
        secret = Secret(
            name,
            self._seal.close(name, value),
            tuple(dict.fromkeys(job_types)),
            former.created_at if former else now,
            now,
        )
        await self._store.access.save_secret(secret)
        self._secrets[name] = secret
        return secret, former is None

    async def remove(self, name: str) -> None:
        if name not in self._secrets:
            raise NotFound(f"no secret {name!r}", name=name)
        await self._store.access.delete_secret(name)
        self._secrets.pop(name, None)

    def check(self, spec: TaskSpec) -> None:
        """Can a task that is being submitted have what it names?

        Raises:
            InvalidField: there is no such secret, or not for its job type.
            Conflict: it cannot be opened.
        """
        # Most tasks are no scripts, and most scripts name none.
        if spec.job_type != JOB_TYPE or '"secrets"' not in spec.payload:
            return
        for name in set(_named(spec.payload).values()):
            self._require(name, spec.job_type)

    async def give(
        self, link: WorkerLink, task_id: str, attempt: int
    ) -> Mapping[str, str]:
        """The values an attempt names, by variable, to the worker that has it.

        Raises:
            Conflict: this worker does not have that attempt now.
            InvalidField: a secret was removed since the task was submitted.
        """
        task = self._cluster.tasks.get(task_id)
        if task is None or not _is_with(task, attempt, link):
            raise Conflict("this worker does not have that attempt", task_id=task_id)
        payload = task.spec.payload
        if not payload:  # too large to be kept in memory
            stored = await self._store.tasks.get_task(task_id)
            payload = stored.spec.payload if stored else "{}"
        names = _named(payload)
        return {
            variable: self._require(name, task.spec.job_type)
            for variable, name in names.items()
        }

    def _require(self, name: str, job_type: str) -> str:
        secret = self._secrets.get(name)
        if secret is None:
            raise InvalidField(
                f"no secret {name!r}; set it with 'corral secret set {name}'",
                field="secrets",
            )
        if not secret.allows(job_type):
            allowed = ", ".join(secret.job_types)
            raise InvalidField(
                f"secret {name!r} is for tasks of {allowed} only", field="secrets"
            )
        return self._open(name)

    def _open(self, name: str) -> str:
        try:
            return self._seal.open(name, self._secrets[name].sealed)
        except Unsealable:
            raise Conflict(
                f"secret {name!r} cannot be opened: it was set under another cluster "
                f"secret. Restore that file, or 'corral secret set {name}' again",
                name=name,
            ) from None


class Seal:
    """AES-256-GCM under a key derived from the cluster secret."""

    def __init__(self, cluster_secret: bytes) -> None:
        derive = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_PURPOSE)
        self._cipher = AESGCM(derive.derive(cluster_secret))

    def close(self, name: str, value: str) -> str:
        """The value as it may be stored under `name`."""
        nonce = os.urandom(_NONCE_BYTES)
        box = self._cipher.encrypt(nonce, value.encode(), _bound(name))
        return _VERSION + base64.b64encode(nonce + box).decode()

    def open(self, name: str, sealed: str) -> str:
        """The value that was stored under `name`.

        Raises:
            Unsealable: it was sealed under another key or name, or changed since.
        """
        try:
            raw = base64.b64decode(sealed.removeprefix(_VERSION), validate=True)
            nonce, box = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, box, _bound(name)).decode()
        except (InvalidTag, ValueError):
            raise Unsealable(name) from None


def _is_with(task: Task, attempt: int, link: WorkerLink) -> bool:
    return (
        task.attempt == attempt
        and task.worker_id == link.id
        and task.incarnation is not None
        and task.incarnation == link.worker.incarnation
    )


def _named(payload: str) -> Mapping[str, str]:
    """Variables and the secrets they hold, of a script's payload."""
    try:
        told: Any = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return {}
    return read_script(told).secrets


def _bound(name: str) -> bytes:
    return f"{_VERSION}{name}".encode()
