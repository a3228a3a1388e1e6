"""Seals values for the store and opens them again; knows neither store nor callers.

The key follows from the cluster secret, which is in a file of the manager alone: who
has only the database, or a copy of it, cannot read a value. A sealed value opens under
its own name only, so that rows cannot be exchanged.
"""

from __future__ import annotations

import base64
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_VERSION = "1:"
_PURPOSE = b"corral: named secrets"
_KEY_BYTES = 32
_NONCE_BYTES = 12


class Unsealable(Exception):
    """The key is another one, or what was stored has been changed."""


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


def _bound(name: str) -> bytes:
    return f"{_VERSION}{name}".encode()
