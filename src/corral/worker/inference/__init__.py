"""Models that answer: text, vectors, labels, captions, speech and images.

Nothing here but the backends imports torch or its like, and those are imported in the
runner, when the first model that needs them is loaded.
"""

from __future__ import annotations

from corral.worker.inference.worker import InferenceWorker

__all__ = ["InferenceWorker"]
