"""The other policies of the product, for the serving simulator."""

from __future__ import annotations

from bench.serving_adapter import Corral
from corral.scheduler.scheduler import Policy


class CorralLru(Corral):
    policy = Policy(order_max_tasks=1, is_lru=True)


class LeastLoaded(Corral):
    policy = Policy(order_max_tasks=1, strategy="least_loaded")


class WeightedRoundRobin(Corral):
    policy = Policy(order_max_tasks=1, strategy="weighted_round_robin")


class Affinity(Corral):
    policy = Policy(order_max_tasks=1, strategy="affinity")
