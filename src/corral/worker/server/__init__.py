"""Models that external servers hold: started, watched, asked over HTTP, and ended.

Any program that answers as the OpenAI API does will do. Nothing here computes.
"""

from __future__ import annotations

from corral.worker.server.worker import ServerWorker

__all__ = ["ServerWorker"]
