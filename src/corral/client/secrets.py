"""The calls about named secrets: set, list, remove. No call gives a value back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value


class SecretInfo(Value, frozen=True, kw_only=True):
    """A secret without its value; `job_types` may have it, all when empty."""

    name: str
    job_types: list[str] = []
    created_at: datetime | None = None
    updated_at: datetime | None = None


class _Secrets(msgspec.Struct):
    secrets: list[SecretInfo]


def secrets() -> Flow[list[SecretInfo]]:
    """Every secret, by name."""
    response = yield get("/secrets")
    return decode(response, _Secrets).secrets


def set_secret(
    name: str, value: str, *, job_types: Sequence[str] = ()
) -> Flow[SecretInfo]:
    """Keep a value under a name, encrypted; attempts that start later get it.

    Args:
        name: As variables are named: letters, digits and _.
        value: What a job finds in its environment.
        job_types: Whose tasks may have it; without any, all.
    """
    body = encode({"name": name, "value": value, "job_types": list(job_types)})
    response = yield Request("POST", "/secrets", body=body, is_repeatable=True)
    return decode(response, SecretInfo)


def remove_secret(name: str) -> Flow[None]:
    """Forget a secret; jobs that have it keep it. Raises NotFound."""
    yield Request("DELETE", f"/secrets/{segment(name)}")
