"""Secrets that need no table: a worker incarnation's key follows from the cluster's."""

from __future__ import annotations

import hashlib
import hmac


def worker_secret(cluster_secret: bytes, worker_id: str, incarnation: str) -> str:
    """The hex key that signs the orders of one incarnation."""
    text = f"order:{worker_id}:{incarnation}".encode()
    return hmac.new(cluster_secret, text, hashlib.sha256).hexdigest()


def node_password(cluster_secret: bytes, node_id: str) -> str:
    """A node's password at Redis: the same again after Redis forgot its users."""
    text = f"redis:{node_id}".encode()
    return hmac.new(cluster_secret, text, hashlib.sha256).hexdigest()


def webhook_secret(cluster_secret: bytes) -> str:
    """What signs the calls of webhooks; receivers are given it to check them."""
    return hmac.new(cluster_secret, b"webhook", hashlib.sha256).hexdigest()


def worker_token(cluster_secret: bytes, worker_id: str) -> str:
    """What the manager shows a worker's own port; the same for all incarnations."""
    text = f"face:{worker_id}".encode()
    return hmac.new(cluster_secret, text, hashlib.sha256).hexdigest()


def audit_key(cluster_secret: bytes) -> bytes:
    """What the hashes of the audit log are made with."""
    return hmac.digest(cluster_secret, b"audit", "sha256")
