"""What is compared: policies, on the cluster as it is and as it might be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from corral.errors import InvalidField
from corral.scheduler.decide.strategies import STRATEGIES
from corral.scheduler.policy import Policy
from corral.sim.machine import Machine
from corral.sim.measure import Figures, curve, figures
from corral.sim.simulation import Advance, Simulation
from corral.sim.workload import Workload

POLICIES = ("smith", *STRATEGIES)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run to be made, and how it is called."""

    policy: Policy
    change: str
    workload: Workload
    machines: tuple[Machine, ...]

    @property
    def name(self) -> str:
        return f"{self.policy.strategy} {self.change}".rstrip()


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """What came of a scenario; `curve` is for plots."""

    scenario: Scenario
    figures: Figures
    curve: list[tuple[float, float]]


def scenarios(
    workload: Workload,
    machines: Sequence[Machine],
    policies: Sequence[Policy],
    add: Sequence[Machine] = (),
    load: float = 1.0,
) -> list[Scenario]:
    """Each policy as it is, and with the changes, if there are any."""
    now = tuple(machines)
    found = [Scenario(policy, "", workload, now) for policy in policies]
    if add or load != 1.0:
        words = [f"+{len(add)} worker(s)"] if add else []
        words += [f"load x{load:g}"] if load != 1.0 else []
        more = workload.faster(load) if load != 1.0 else workload
        changed = (*now, *add)
        found += [Scenario(p, ", ".join(words), more, changed) for p in policies]
    return found


def policies_of(names: str, base: Policy) -> list[Policy]:
    """Policies by name, else as `base` is.

    Raises:
        InvalidField: there is no such policy.
    """
    found = []
    for name in names.split(","):
        if name not in POLICIES:
            raise InvalidField(
                f"no policy {name!r}: there are {', '.join(POLICIES)}", field="policy"
            )
        found.append(replace(base, strategy=name))
    return found


def run(
    scenario: Scenario, on_progress: Advance = lambda done, total: None
) -> ScenarioOutcome:
    record = Simulation(
        scenario.workload, scenario.machines, scenario.policy, on_progress
    ).run()
    return ScenarioOutcome(scenario, figures(record), curve(record))
