"""Runs tasks on a node: the Worker base class, its supervisor and its runners.

User code lives in runner processes only; the supervisor never imports it.
"""

from __future__ import annotations

from corral.worker.base import Context, Failure, Worker
from corral.worker.builtin import EchoWorker, SleepWorker

__all__ = ["Context", "EchoWorker", "Failure", "SleepWorker", "Worker"]
