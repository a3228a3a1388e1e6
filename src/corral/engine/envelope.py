"""Writes one order as the Celery message a worker understands, and signs it.

The headers and body come from Celery's own protocol code; only the outer form that
kombu stores in a Redis list is written here, and pinned by a test with a real worker.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from celery import Celery

from corral.engine.celery_app import ORDER_TASK
from corral.wire.orders import Order


def queue_name(node_id: str, worker_id: str) -> str:
    return f"w.{node_id}.{worker_id}"


def sign(body: str, secret: str) -> str:
    return hmac.new(bytes.fromhex(secret), body.encode(), hashlib.sha256).hexdigest()


def verify(signed: Mapping[str, Any], secret: str) -> str | None:
    """The body of a signed order, or None when the signature is not ours."""
    body, signature = signed.get("body"), signed.get("signature")
    if not isinstance(body, str) or not isinstance(signature, str):
        return None
    good = hmac.compare_digest(sign(body, secret).encode(), signature.encode())
    return body if good else None


def signed_order(order: Order, secret: str) -> dict[str, str]:
    """The order as wire object: `{"body": text, "signature": hex}`."""
    body = msgspec.json.encode(order).decode()
    return {"body": body, "signature": sign(body, secret)}


@lru_cache(maxsize=1)
def _protocol() -> Celery:
    return Celery("corral-envelope", set_as_current=False)


def message(order_id: str, signed: Mapping[str, str], queue: str) -> str:
    """What to LPUSH on `queue` so that a Celery worker runs the order."""
    task = _protocol().amqp.as_task_v2(
        task_id=order_id,
        name=ORDER_TASK,
        args=(dict(signed),),
        argsrepr="(order)",
        kwargsrepr="{}",
        ignore_result=True,
        origin="corral",
    )
    body = base64.b64encode(json.dumps(task.body).encode()).decode()
    return json.dumps(
        {
            "body": body,
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": task.headers,
            "properties": {
                **task.properties,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": uuid.uuid4().hex,
            },
        }
    )
