"""Every exception Corral raises. Facts travel as attributes; HTTP codes live in api/.

CorralError
├── SettingsError            a setting has a value that is not allowed
├── BadRequest               the caller's input cannot be used
│   ├── InvalidJson
│   ├── InvalidField         one field is wrong (.field)
│   ├── UnknownTaskType
│   ├── UnsupportedType      a body of a content type that is not taken
│   └── TooLarge
├── NotFound
│   ├── TaskNotFound
│   ├── WorkerNotFound
│   └── NodeNotFound
├── Conflict                 the thing is not in a state that allows this
│   ├── IllegalTransition
│   ├── ClaimRefused         a node says more of itself than its join token allows
│   └── VersionRefused       a node's version is too far from the manager's
├── AuthError
│   ├── Unauthenticated
│   ├── Forbidden
│   └── RateLimited          (.retry_after_s)
├── Unavailable              a part the cluster needs does not answer
│   ├── StoreUnavailable
│   ├── EngineUnavailable
│   ├── NotLeader
│   └── Unreachable          the client cannot reach the manager
├── SchedulingError
├── TaskFailed               a client waited for a task that did not complete
├── WorkerError              user code of a worker cannot be loaded or used
│   └── EnvironmentFailed    its sources or its Python cannot be had (.output)
├── EmbeddedError            the embedded PostgreSQL or Redis cannot be started
├── CorruptObject            stored bytes are not what was put there (.digest)
└── AlreadyRunning           another Corral uses this data folder or port
"""

from __future__ import annotations

from typing import Any


class CorralError(Exception):
    """Base of all; `code` is the stable word that also stands in HTTP answers."""

    code = "error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def __getattr__(self, name: str) -> Any:
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(name)


class SettingsError(CorralError):
    code = "invalid_setting"


class BadRequest(CorralError):
    code = "bad_request"


class InvalidJson(BadRequest):
    code = "invalid_json"


class InvalidField(BadRequest):
    code = "invalid_field"


class UnknownTaskType(BadRequest):
    code = "unknown_task_type"


class UnsupportedType(BadRequest):
    code = "unsupported_media_type"


class TooLarge(BadRequest):
    code = "too_large"


class NotFound(CorralError):
    code = "not_found"


class TaskNotFound(NotFound):
    code = "task_not_found"


class WorkerNotFound(NotFound):
    code = "worker_not_found"


class NodeNotFound(NotFound):
    code = "node_not_found"


class Conflict(CorralError):
    code = "conflict"


class IllegalTransition(Conflict):
    code = "illegal_transition"


class ClaimRefused(Conflict):
    code = "claim_refused"


class VersionRefused(Conflict):
    code = "version_refused"


class AuthError(CorralError):
    code = "auth_error"


class Unauthenticated(AuthError):
    code = "unauthenticated"


class Forbidden(AuthError):
    code = "forbidden"


class RateLimited(AuthError):
    code = "rate_limited"


class Unavailable(CorralError):
    code = "unavailable"


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class EngineUnavailable(Unavailable):
    code = "engine_unavailable"


class NotLeader(Unavailable):
    code = "not_leader"


class Unreachable(Unavailable):
    code = "unreachable"


class SchedulingError(CorralError):
    code = "scheduling_error"


class TaskFailed(CorralError):
    code = "task_failed"


class WorkerError(CorralError):
    code = "worker_error"


class EnvironmentFailed(WorkerError):
    code = "environment_failed"

    def __init__(self, message: str, *, output: str = "", **details: Any) -> None:
        super().__init__(message, output=output, **details)


class EmbeddedError(CorralError):
    code = "embedded_error"


class CorruptObject(CorralError):
    code = "corrupt_object"


class AlreadyRunning(CorralError):
    code = "already_running"


# Only what stands here: other rooms refine some of them for themselves.
BY_CODE = {
    kind.code: kind
    for kind in tuple(vars().values())
    if isinstance(kind, type) and issubclass(kind, CorralError)
}
"""The exception that a `code` of an answer stands for."""
