"""How far a node's clock is from the manager's, as far as messages can tell."""

from __future__ import annotations

from dataclasses import dataclass

KEPT = 6
ALARM_S = 5.0
CALM_S = 4.0
CORRECT_S = 1.0


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """The node's lead over us at each of its last messages.

    A message takes time, which makes every reading too low and none too high: the
    largest of the last few is the best. Old ones go, for clocks are set.
    """

    leads: tuple[float, ...] = ()

    def heard(self, sent_at: float, received_at: float) -> ClockSkew:
        """With one more message: their wall clock when it left, ours when it came."""
        return ClockSkew((*self.leads, sent_at - received_at)[-KEPT:])

    @property
    def seconds(self) -> float | None:
        """How much their clock is ahead of ours; None before they said anything."""
        return max(self.leads, default=None)

    @property
    def correction_s(self) -> float:
        """What to take off times they report; small differences are left alone."""
        lead = self.seconds
        return lead if lead is not None and abs(lead) > CORRECT_S else 0.0

    def is_alarming(self, was: bool) -> bool:
        """Is it worth a warning? Not on one message, and not to and fro."""
        lead = self.seconds
        if lead is None or len(self.leads) < 3:
            return was
        return abs(lead) > (CALM_S if was else ALARM_S)
