"""A circuit breaker: what keeps failing is left alone for a while, then tried once.

Pure: the time is given, any clock that never goes back will do. Who begins, fails and
succeeds is named, so that only the one probe of a half-open breaker decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from corral.core.backoff import Backoff


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """`failures` within `window_s` open it for `cooldown_s`, which doubles each time
    a probe fails, up to `longest_s`.
    """

    failures: int = 5
    window_s: float = 300.0
    cooldown_s: float = 60.0
    longest_s: float = 3600.0

    def pause_s(self, openings: int) -> float:
        """How long it stays open, the `openings`-th time in a row."""
        longest_s = max(self.longest_s, self.cooldown_s)
        return Backoff(self.cooldown_s, longest_s).delay_s(openings)


@dataclass(frozen=True, slots=True)
class BreakerReport:
    """A breaker at one moment, in figures that need no common clock."""

    key: str
    state: BreakerState
    failures: int
    window_s: float
    age_s: float
    next_probe_s: float
    error: str

    @property
    def text(self) -> str:
        """In words, for whoever waits because of it."""
        if self.state is BreakerState.HALF_OPEN:
            said = "breaker half-open: it is being tried again"
        else:
            many = "failure" if self.failures == 1 else "failures"
            said = (
                f"breaker open: {self.failures} {many} in {self.window_s:g} s, "
                f"next try in {self.next_probe_s:.0f} s"
            )
        return f"{said}: {self.error}" if self.error else said


@dataclass(frozen=True, slots=True)
class Breaker:
    """Closed until too much fails, then open, then half-open for exactly one probe.

    Every method gives the breaker as it is afterwards and changes nothing itself.
    """

    policy: BreakerPolicy = field(default_factory=BreakerPolicy)
    state: BreakerState = BreakerState.CLOSED
    failed_at: tuple[float, ...] = ()
    opened_at: float = 0.0
    openings: int = 0
    probe: str | None = None
    error: str = ""

    @property
    def is_closed(self) -> bool:
        return self.state is BreakerState.CLOSED

    def allows(self, now: float) -> bool:
        """May somebody begin now? While it is open, one may once `now` is due."""
        if self.state is BreakerState.OPEN:
            return now >= self._due_at
        return self.is_closed

    def next_probe_s(self, now: float) -> float:
        """Seconds until a probe may begin; 0 unless it is open."""
        if self.state is not BreakerState.OPEN:
            return 0.0
        return max(0.0, self._due_at - now)

    def begin(self, now: float, who: str) -> Breaker:
        """`who` begins, which must be allowed; of an open breaker it is the probe."""
        if not self.allows(now):
            raise ValueError(f"breaker is {self.state}: {who} may not begin")
        if self.is_closed:
            return self
        return replace(self, state=BreakerState.HALF_OPEN, probe=who)

    def fail(self, now: float, who: str, error: str) -> Breaker:
        """What `who` began has failed."""
        if self.is_closed:
            return self._count(now, error)
        if self.state is BreakerState.HALF_OPEN and who == self.probe:
            return self._open(now, error)
        # A straggler from before: it tells why, but lengthens nothing.
        return replace(self, error=error)

    def succeed(self, who: str) -> Breaker:
        """What `who` began does well; when it is the probe, that closes the breaker.

        While it is closed nothing is forgotten but by time: others of the same kind
        may be failing.
        """
        if self.state is BreakerState.HALF_OPEN and who == self.probe:
            return self.reset()
        return self

    def abandon(self, who: str) -> Breaker:
        """`who` was ended by somebody else: the probe's turn is another's at once."""
        if self.state is BreakerState.HALF_OPEN and who == self.probe:
            return replace(self, state=BreakerState.OPEN, probe=None)
        return self

    def reset(self) -> Breaker:
        """Closed, as if nothing had happened."""
        return Breaker(self.policy)

    def report(self, key: str, now: float) -> BreakerReport:
        return BreakerReport(
            key=key,
            state=self.state,
            failures=len(self.failed_at),
            window_s=self.policy.window_s,
            age_s=max(0.0, now - self.opened_at) if not self.is_closed else 0.0,
            next_probe_s=self.next_probe_s(now),
            error=self.error,
        )

    @property
    def _due_at(self) -> float:
        return self.opened_at + self.policy.pause_s(self.openings)

    def _count(self, now: float, error: str) -> Breaker:
        since = now - self.policy.window_s
        recent = (*(at for at in self.failed_at if at > since), now)
        counted = replace(self, failed_at=recent, error=error)
        return counted._open(now, error) if self._is_full(recent) else counted

    def _is_full(self, recent: tuple[float, ...]) -> bool:
        return len(recent) >= self.policy.failures

    def _open(self, now: float, error: str) -> Breaker:
        return replace(
            self,
            state=BreakerState.OPEN,
            opened_at=now,
            openings=self.openings + 1,
            probe=None,
            error=error,
        )
