"""The canary: a task that goes all the way to one worker and is answered there."""

from __future__ import annotations

CANARY = "corral.canary"
"""Its job type, which no worker has to serve, and the label that names its flight."""
