"""`corral validate`: sends a canary through every worker and checks the answers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import errors, output, progress
from corral.cli.words import task as task_words
from corral.core.tasks.job_type import CANARY
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.client import Client, TaskInfo
    from corral.wire.nodes import NodeInfo
    from corral.wire.workers import WorkerInfo

TIMEOUT_S = 30.0
_LOOK_S = 1.0
_READY = frozenset({"ready", "busy"})
OK, FAILED, SILENT = "ok", "failed", "no answer"
NOT_READY, HELD = "not ready", "held"


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """What came of one worker's canary."""

    worker: WorkerInfo
    host: str
    status: str
    detail: str = ""
    answer: Mapping[str, Any] | None = None

    @property
    def is_ok(self) -> bool:
        return self.status == OK

    def to_dict(self) -> dict[str, Any]:
        return {
            "worker_id": self.worker.worker_id,
            "name": self.worker.name,
            "node_id": self.worker.node_id,
            "node": self.host,
            "worker_class": self.worker.worker_class,
            "status": self.status,
            "detail": self.detail,
            "answer": dict(self.answer) if self.answer is not None else None,
        }


def validate(
    ctx: typer.Context,
    timeout: Annotated[
        float,
        typer.Option(metavar="S", help="Seconds to wait for the answers.", min=0.1),
    ] = TIMEOUT_S,
    as_json: output.JsonFlag = False,
) -> None:
    """Send a small task through every worker; exits 1 unless all answer well."""
    with connect(ctx) as client:
        nodes = {node.node_id: node for node in client.nodes()}
        workers = client.workers()
        found = {v.worker.worker_id: v for v in _absent(workers, nodes)}
        asked = [w for w in workers if w.worker_id not in found]
        found |= {v.worker.worker_id: v for v in _fly(client, asked, nodes, timeout)}
    _tell([found[w.worker_id] for w in workers], as_json=as_json)


def _absent(
    workers: Iterable[WorkerInfo], nodes: Mapping[str, NodeInfo]
) -> Iterable[CanaryResult]:
    """Those a canary could not reach, and why."""
    for worker in workers:
        node = nodes.get(worker.node_id or "")
        host = node.hostname if node else ""
        if node is not None and node.status != "online":
            yield CanaryResult(worker, host, NOT_READY, f"its node is {node.status}")
        elif node is not None and node.holds:
            why = "; ".join(f"{h.source}: {h.reason}" for h in node.holds)
            yield CanaryResult(worker, host, HELD, why)
        elif worker.state not in _READY:
            yield CanaryResult(worker, host, NOT_READY, worker.error or worker.state)


def _fly(
    client: Client,
    workers: Sequence[WorkerInfo],
    nodes: Mapping[str, NodeInfo],
    timeout_s: float,
) -> list[CanaryResult]:
    if not workers:
        return []
    nonce = secrets.token_hex(8)
    batch = client.submit_batch(
        [_canary(worker.worker_id, nonce, timeout_s) for worker in workers]
    )
    refused = {refusal.index: refusal.message for refusal in batch.errors}
    ids = [task_id for task_id in batch.task_ids if task_id is not None]
    ended = _await(client, ids, timeout_s)
    verdicts = []
    for place, (worker, id_) in enumerate(zip(workers, batch.task_ids, strict=True)):
        node = nodes.get(worker.node_id or "")
        host = node.hostname if node else ""
        if id_ is None:
            verdicts.append(CanaryResult(worker, host, FAILED, refused.get(place, "")))
        elif id_ in ended:
            verdicts.append(_judge(worker, host, ended[id_], nonce))
        else:
            detail = _why(client, id_, timeout_s)
            verdicts.append(CanaryResult(worker, host, SILENT, detail))
    return verdicts


def _canary(worker_id: str, nonce: str, timeout_s: float) -> dict[str, Any]:
    return {
        "task_type": CANARY,
        "parameters": {"nonce": nonce},
        "only_on": worker_id,
        "labels": {CANARY: nonce},
        "timeout": timeout_s,
        # Whoever validates wants to know now; it takes a moment only.
        "priority": "critical",
    }


def _await(client: Client, ids: Sequence[str], timeout_s: float) -> dict[str, TaskInfo]:
    """Those that have ended in time."""
    from corral.client.http.endpoint import poll

    tries = poll(timeout_s, _LOOK_S)
    ended: dict[str, TaskInfo] = {}
    left = list(ids)
    with progress.bar("canaries") as advance:
        while left and (wait_s := next(tries, None)) is not None:
            some = left[:1000]
            found = client.collect(some, wait_s=wait_s)
            ended |= {task.task_id: task for task in found.tasks}
            # Others first next time: one that hangs must not hide the rest.
            left = [id_ for id_ in (*left[1000:], *some) if id_ not in ended]
            advance(len(ended), len(ids))
    return ended


def _judge(worker: WorkerInfo, host: str, task: TaskInfo, nonce: str) -> CanaryResult:
    if not task.is_completed:
        said = task.error.message if task.error else task.status
        return CanaryResult(worker, host, FAILED, said)
    told = task.result if isinstance(task.result, dict) else {}
    if told.get("nonce") != nonce or task.worker_id != worker.worker_id:
        return CanaryResult(
            worker, host, FAILED, "the answer is not to this canary", told
        )
    took = ""
    if task.completed_at and task.created_at:
        took = output.took((task.completed_at - task.created_at).total_seconds())
    return CanaryResult(worker, host, OK, took, told)


def _why(client: Client, task_id: str, timeout_s: float) -> str:
    """Why there was no answer; the canary is called back."""
    try:
        task = client.get_task(task_id)
        client.cancel(task_id)
    except CorralError as error:
        return error.message
    waiting = task_words.waits(task) or f"it is {task.status}"
    return f"none within {timeout_s:g} s: {waiting}"


def _tell(verdicts: Sequence[CanaryResult], *, as_json: bool) -> None:
    good = sum(v.is_ok for v in verdicts)
    is_ok = bool(verdicts) and good == len(verdicts)
    if as_json:
        output.echo_json({"ok": is_ok, "workers": [v.to_dict() for v in verdicts]})
    elif verdicts:
        output.table(
            ("WORKER", "NODE", "CLASS", "CANARY", "DETAIL"),
            [
                (v.worker.name, v.host, v.worker.worker_class, v.status, v.detail)
                for v in verdicts
            ],
        )
        output.hint(f"{good} of {len(verdicts)} workers answered.")
    else:
        output.hint("No worker runs: start one with 'corral worker launch CLASS'.")
    if not is_ok:
        raise typer.Exit(errors.FAILED)
