"""A made-up workload: few models wanted often, many seldom; tasks come in bursts."""

from __future__ import annotations

import random

from corral.scheduler.events import Waiting
from corral.sim.workload import GENERATE, Arrival, Model, Workload, workload

TASKS = 5_000
MODELS = 60
SIZES_GB = (4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
POPULARITY = 1.1
"""The model on place n is wanted n to the power of minus this as often."""
BURST = 4.0
"""Standard deviation of the gaps between arrivals, in means."""
HIGH_SHARE = 0.1
HIGH = 10


def synthetic(seed: int, tasks: int = TASKS, models: int = MODELS) -> Workload:
    """The same for the same seed; one task a second on average."""
    chance = random.Random(f"corral {seed}")
    sizes = [chance.choice(SIZES_GB) for _ in range(models)]
    made = [
        Model(f"model-{n:03}", size * 1024, 4.0 + 2.0 * size)
        for n, size in enumerate(sizes, 1)
    ]
    wanted = [n**-POPULARITY for n in range(1, models + 1)]
    typical_s = [chance.lognormvariate(2.5, 0.4) for _ in made]
    arrivals, now = [], 1.0
    for number in range(1, tasks + 1):
        now += chance.gammavariate(BURST**-2, BURST**2)
        (which,) = chance.choices(range(models), wanted)
        units = min(8, 1 + int(chance.expovariate(0.8)))
        task = Waiting(
            task_id=f"s{number:06}",
            attempt=1,
            job_type=GENERATE,
            seq=number,
            priority=HIGH if chance.random() < HIGH_SHARE else 0,
            model=made[which].name,
            arrived=now,
            units=units,
        )
        run_s = typical_s[which] * (0.4 + 0.3 * units) * chance.lognormvariate(0, 0.3)
        arrivals.append(Arrival(task, run_s))
    return workload(arrivals, made)
