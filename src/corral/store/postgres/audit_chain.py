"""The hash chain of the audit log: each row's hash covers the row before it.

Hashes have a key that is not in the database: who can only write rows can make none
that fit. So has the seal over both ends of the chain: without it rows could be cut off
at either end together with the record of them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

from corral.store.base import AuditReport

_COVERED = ("actor", "action", "target", "allowed", "ip", "request_id", "data")
_BROKEN = "broken"
"""The seal of a chain that was found changed: it is never whole again by itself."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Both ends of what is kept.

    `anchor` is the hash before the first row kept: pruning moves it along. Rows before
    `keyed_from` were written when hashes had no key.
    """

    first_seq: int = 1
    anchor: str = ""
    last_seq: int = 0
    last_hash: str = ""
    keyed_from: int = 0
    seal: str = ""


def chain_hash(before: str, row: Mapping[str, Any], key: bytes | None) -> str:
    at = row["at"].astimezone(UTC).isoformat(timespec="microseconds")
    covered = [row["seq"], at, *(row[name] for name in _COVERED)]
    text = json.dumps(covered, separators=(",", ":"))
    covered_text = f"{before}\n{text}".encode()
    if key is None:
        return hashlib.sha256(covered_text).hexdigest()
    return hmac.new(key, covered_text, "sha256").hexdigest()


def begin(chain: Chain, key: bytes) -> Chain:
    """The chain with a seal, if it never had one: from here on hashes have the key."""
    if chain.seal:
        return chain
    return _sealed(replace(chain, keyed_from=chain.last_seq + 1), key)


def link(
    chain: Chain, rows: Iterable[Mapping[str, Any]], key: bytes
) -> tuple[Chain, list[dict[str, Any]]]:
    """Give rows their seq and hash; the chain as it is after them."""
    seq, last = chain.last_seq, chain.last_hash
    linked = []
    for row in rows:
        seq += 1
        entry = {**row, "seq": seq}
        last = chain_hash(last, entry, key)
        linked.append({**entry, "hash": last})
    return _moved(chain, replace(chain, last_seq=seq, last_hash=last), key), linked


def cut(chain: Chain, seq: int, row_hash: str, key: bytes) -> Chain:
    """The chain without its rows up to this one."""
    return _moved(chain, replace(chain, first_seq=seq + 1, anchor=row_hash), key)


def _moved(before: Chain, after: Chain, key: bytes) -> Chain:
    """Sealed anew, unless it was changed by others: that must not be covered up."""
    if not _is_sealed(before, key):
        return replace(after, seal=_BROKEN)
    return _sealed(after, key)


def _sealed(chain: Chain, key: bytes) -> Chain:
    return replace(chain, seal=_seal(chain, key))


def _is_sealed(chain: Chain, key: bytes) -> bool:
    return hmac.compare_digest(chain.seal.encode(), _seal(chain, key).encode())


def _seal(chain: Chain, key: bytes) -> str:
    ends = [chain.first_seq, chain.anchor, chain.last_seq, chain.last_hash]
    text = json.dumps(["ends", *ends, chain.keyed_from])
    return hmac.new(key, text.encode(), "sha256").hexdigest()


class Verifier:
    """Walks the rows of a chain in order."""

    def __init__(self, chain: Chain, key: bytes) -> None:
        self._chain = chain
        self._key = key
        self._seq, self._hash = chain.first_seq - 1, chain.anchor
        self._fault = ""
        if not _is_sealed(chain, key):
            self._fault = "the seal over its ends does not fit"

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Is this the row that must come next, unchanged?"""
        key = self._key if self._seq + 1 >= self._chain.keyed_from else None
        expected = chain_hash(self._hash, row, key)
        self._seq, self._hash = self._seq + 1, row["hash"]
        is_next = row["seq"] == self._seq
        if not is_next or not hmac.compare_digest(self._hash, expected):
            what = "was changed" if is_next else "is missing"
            self._fault = f"row {self._seq} {what}"
        return not self._fault

    def report(self) -> AuditReport:
        """What was found; the rows must have been shown until one was not accepted."""
        chain = self._chain
        ends = (chain.last_seq, chain.last_hash)
        if not self._fault and (self._seq, self._hash) != ends:
            self._fault = f"rows after {self._seq} are missing"
        return AuditReport(
            chain.first_seq, chain.last_seq, chain.keyed_from, self._fault
        )
