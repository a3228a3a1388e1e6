"""What tasks leave behind while they run and after: logs, streams, files."""

from __future__ import annotations

from collections.abc import Sequence

from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.output.artifacts import Artifacts
from corral.manager.output.exec import Execs
from corral.manager.output.logs import TaskLogs
from corral.manager.output.objects import Objects
from corral.manager.output.stream import SWEEP_S, TaskOutput


class Output(Feature):
    def __init__(self, ctx: ManagerContext, artifact_limit_bytes: int) -> None:
        self._followers = ctx.cluster.followers
        self.artifacts = Artifacts(ctx, artifact_limit_bytes)
        self.execs = Execs(ctx)
        self.logs = TaskLogs(ctx)
        self.objects = Objects(ctx)
        self.stream = TaskOutput(ctx)

    def loops(self) -> Sequence[Loop]:
        return (Loop("streams", SWEEP_S, self.stream.step),)

    def release(self) -> None:
        self._followers.release()
        self.execs.release()
