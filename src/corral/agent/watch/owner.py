"""Watches whether this node's owner uses it, on a thread of its own.

It only says so; what follows is the manager's decision.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from corral.agent.watch.idle import idle_s
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.owner import Owner, OwnerMode, OwnerPolicy, use_seen
from corral.wire.agent import OwnerWord

LOG = logging.getLogger("corral.agent")
LOOK_S = 2.0


class OwnerWatch:
    """`word` never blocks; `on_news` is rung when it has changed."""

    def __init__(
        self,
        policy: OwnerPolicy,
        gpus: Callable[[], Sequence[Gpu]],
        idle: Callable[[], float | None] = idle_s,
        look_s: float = LOOK_S,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy = policy
        self._gpus = gpus
        self._idle = idle
        self._look_s = look_s
        self._owner = Owner()
        self._stop = threading.Event()
        self._on_news = on_news

    @property
    def is_off(self) -> bool:
        return self._policy.mode is OwnerMode.OFF

    def start(self) -> None:
        if not self.is_off:
            threading.Thread(target=self._watch, name="owner", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def word(self) -> OwnerWord | None:
        """The owner as the heartbeat has it; None without a policy."""
        if self.is_off:
            return None
        owner = self._owner
        drain = self._policy.mode is OwnerMode.DRAIN
        return OwnerWord(active=owner.is_active, reason=owner.reason, drain=drain)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self.look(time.monotonic())
            except Exception:
                LOG.exception("cannot see whether the owner uses this node")
            self._stop.wait(self._look_s)

    def look(self, now: float) -> None:
        """Look once."""
        seen = use_seen(self._policy, self._gpus(), self._idle())
        before = self._owner
        self._owner = before.follow(seen, now, self._policy.resume_s)
        if self._owner.is_active is before.is_active:
            return
        if self._owner.is_active:
            LOG.info("the owner uses this node: %s", self._owner.reason)
        else:
            LOG.info("the owner no longer uses this node")
        self._on_news()
