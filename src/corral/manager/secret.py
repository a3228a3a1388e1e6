"""Secrets that need no table: a worker incarnation's key follows from the cluster's."""

from __future__ import annotations

import hashlib
import hmac


def worker_secret(cluster_secret: bytes, worker_id: str, incarnation: str) -> str:
    """The hex key that signs the orders of one incarnation."""
    text = f"order:{worker_id}:{incarnation}".encode()
    return hmac.new(cluster_secret, text, hashlib.sha256).hexdigest()
