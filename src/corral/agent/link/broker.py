"""How this node's workers reach Redis: straight, or through the agent's tunnel.

It only finds the way and writes the URL; what is said there is `engine`'s affair.
"""

from __future__ import annotations

import logging
from urllib.parse import quote, urlsplit

from corral.wire.agent import RedisAccess

LOG = logging.getLogger("corral.agent")
PROBE_TIMEOUT_S = 2.0
_UNIX_SCHEMES = ("unix", "socket", "redis+socket")


def worker_url(address: str, access: RedisAccess) -> str:
    """`address` with the node's credentials, in the words workers' Celery knows.

    Credentials in `address` are kept only where the manager granted none: a worker
    is to reach its own queues and nothing else.
    """
    parts = urlsplit(address)
    login = _login(access.username, access.password)
    if not login and "@" in parts.netloc:
        login = parts.netloc.rpartition("@")[0] + "@"
    if parts.scheme in _UNIX_SCHEMES:
        path = quote(parts.path, safe="/")
        return f"redis+socket://{login}{path}?virtual_host={access.database}"
    host = parts.netloc.rpartition("@")[2]
    query = parts.query
    if parts.scheme == "rediss" and "ssl_cert_reqs" not in query:
        query = f"{query}&ssl_cert_reqs=required".lstrip("&")
    tail = f"?{query}" if query else ""
    return f"{parts.scheme}://{login}{host}/{access.database}{tail}"


def answers(url: str, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Does a Redis answer PING at `url`, as `worker_url` writes it, with its login?"""
    # Loaded here: only nodes with an address to try pay for it.
    import redis

    try:
        client = redis.Redis.from_url(
            _plain_url(url),
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=None,
        )
        with client:
            return bool(client.ping())
    except (redis.RedisError, OSError, ValueError) as error:
        LOG.info("no Redis at %s from here: %s", urlsplit(url).hostname, error)
        return False


def direct_way(access: RedisAccess, override: str | None) -> str | None:
    """The URL for workers where a Redis answers from this machine, else None."""
    for address in (override, access.direct_url):
        if address:
            url = worker_url(address, access)
            if answers(url):
                return url
    return None


def _login(username: str | None, password: str | None) -> str:
    if not username and not password:
        return ""
    return f"{quote(username or '', safe='')}:{quote(password or '', safe='')}@"


def _plain_url(url: str) -> str:
    if not url.startswith("redis+socket://"):
        return url
    return url.replace("redis+socket://", "unix://", 1).replace(
        "?virtual_host=", "?db=", 1
    )
