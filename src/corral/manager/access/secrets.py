"""Named secrets: set, listed and removed by people, given to attempts that name them.

Values are sealed in memory and in the store, opened for an attempt at its start, and
kept open nowhere. The seal knows neither store nor callers.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from corral.core.access.key import PEOPLE, Key, Scope
from corral.core.access.secret import Secret, check_secret
from corral.core.nodes.labels import Constraint, check_label
from corral.core.tasks.job_type import job_type_of
from corral.core.tasks.script import JOB_TYPE, read_script
from corral.core.tasks.task import Task, TaskSpec
from corral.errors import Conflict, InvalidField, NotFound
from corral.manager.access.keys import Keys
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

    def __init__(self, ctx: ManagerContext, keys: Keys) -> None:
        self._cluster = ctx.cluster
        self._keys = keys
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

    def known(self, key: Key) -> Sequence[Secret]:
        """Those that tasks of this key may have, by name; all of them for an admin."""
        found = (self._secrets[name] for name in sorted(self._secrets))
        is_all = key.allows(Scope.ADMIN)
        return [each for each in found if is_all or each.is_open_to(key.owner)]

    async def put(
        self,
        name: str,
        value: str,
        *,
        job_types: Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        node_labels: Mapping[str, str] | None = None,
    ) -> tuple[Secret, bool]:
        """Keep a value under a name; attempts that start from now on get it.

        What is None stays as it was: a new value must not open a secret to others.

        Returns:
            The secret, and whether the name is new.
        """
        check_secret(name, value)
        for key, label in (node_labels or {}).items():
            check_label(key, label, "node_labels")
        owners = None if keys is None else [self._owner(key) for key in keys]
        now = self._clock.now()
        former = self._secrets.get(name)
        kept = former or Secret(name, "", created_at=now)
        secret = replace(
            kept,
            sealed=self._seal.close(name, value),
            updated_at=now,
            job_types=_once(job_types, kept.job_types),
            keys=_once(owners, kept.keys),
            node_labels=dict(kept.node_labels if node_labels is None else node_labels),
        )
        await self._store.access.save_secret(secret)
        self._secrets[name] = secret
        return secret, former is None

    def _owner(self, name: str) -> str:
        """Whose tasks are meant by the name or id of a key."""
        for key in self._keys.known():
            if key.scope in PEOPLE and name in (key.id, key.owner):
                return key.owner
        raise InvalidField(
            f"no key {name[:64]!r}; 'corral key list' shows them", field="keys"
        )

    async def remove(self, name: str) -> None:
        if name not in self._secrets:
            raise NotFound(f"no secret {name!r}", name=name)
        await self._store.access.delete_secret(name)
        self._secrets.pop(name, None)

    def check(self, spec: TaskSpec, job_types: Collection[str]) -> TaskSpec:
        """A task that is being submitted, kept to nodes its secrets may go to.

        `job_types` are those it is run as. Types of which no script worker is known
        yet are judged when an attempt asks for its values; so is everything again.

        Raises:
            InvalidField: there is no such secret, or not for this task.
            Conflict: it cannot be opened.
        """
        # Most tasks name none; a letter may also be written as an escape.
        if not any(word in spec.payload for word in ('"secrets"', "\\u")):
            return spec
        if not self._are_scripts(job_types):
            return spec
        wanted = dict(spec.options.node_labels)
        for name in sorted(set(_named(spec.payload).values())):
            secret = self._require(name, job_types, spec.owner)
            self._open(name)
            for key, value in secret.node_labels.items():
                if wanted.setdefault(key, value) != value:
                    raise InvalidField(
                        f"secret {name!r} goes to nodes labelled {key}={value} only",
                        field="node_labels",
                    )
        if wanted == spec.options.node_labels:
            return spec
        return replace(spec, options=replace(spec.options, node_labels=wanted))

    def _are_scripts(self, job_types: Collection[str]) -> bool:
        return JOB_TYPE in job_types or any(
            job_type_of(link.worker.spec.worker_class) == JOB_TYPE
            and not set(job_types).isdisjoint(link.worker.spec.job_types)
            for link in self._cluster.workers.values()
        )

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
        types = link.worker.spec.types_run(task.spec.job_type)
        labels = self._trusted_labels(link.worker.node_id)
        values = {}
        for variable, name in _named(payload).items():
            secret = self._require(name, types, task.spec.owner)
            if missing := Constraint(tuple(secret.node_labels.items())).missing(labels):
                raise InvalidField(
                    f"secret {name!r} may not go to this node: it lacks "
                    f"{', '.join(missing)}, by its join token or 'corral label'",
                    field="secrets",
                )
            values[variable] = self._open(name)
        return values

    def _trusted_labels(self, node_id: str) -> Mapping[str, str]:
        """What its token and operators say of a node; its own word does not count."""
        said = self._cluster.node(node_id).node.set_labels
        labels = {**self._keys.granted_labels(node_id), **said}
        return {key: value for key, value in labels.items() if value}

    def _require(self, name: str, job_types: Collection[str], owner: str) -> Secret:
        """The secret; what is not for this task is as if it were not there."""
        secret = self._secrets.get(name)
        # A node that brought a call of the gateway back to itself gets none for it.
        is_open = secret is not None and secret.allows(job_types, owner)
        if secret is None or not is_open or self._keys.is_of_node(owner):
            types = ", ".join(sorted(job_types)) or "no type"
            raise InvalidField(
                f"no secret {name!r} for tasks of {types} by {owner or 'nobody'}: set "
                f"it with 'corral secret set {name}', or open it to them with its "
                "--job-type and --key",
                field="secrets",
            )
        return secret

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


def _once(said: Iterable[str] | None, kept: tuple[str, ...]) -> tuple[str, ...]:
    return kept if said is None else tuple(dict.fromkeys(said))


def _bound(name: str) -> bytes:
    return f"{_VERSION}{name}".encode()
