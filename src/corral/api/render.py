"""From our values to the answers' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw

from corral import __version__
from corral.api.estimate_model import estimate
from corral.api.hold_model import HoldOut, WindowOut
from corral.api.model import (
    AttemptOut,
    ErrorOut,
    NodeOut,
    ProgressOut,
    StartOut,
    SystemInfo,
    TaskAccepted,
    TaskBrief,
    TaskHistory,
    TaskOut,
    WaitingOut,
    WorkerDetail,
    WorkerMetrics,
    WorkerOut,
)
from corral.api.shelf_model import LoadedModel
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Hold, Node, Sample, Window
from corral.core.nodes.version import fit
from corral.core.nodes.worker import REST_STATE
from corral.core.tasks.environment import to_plain
from corral.core.tasks.needs import NOTHING, need_of, plain
from corral.core.tasks.options import ANYWHERE, constraint_of, gang_of, trace_of
from corral.core.tasks.result_cache import cached_from
from corral.core.tasks.share import PREEMPTIBLE, group_of
from corral.core.tasks.task import Attempt, State, Task, TaskError
from corral.core.tasks.webhook import public, urls_of
from corral.manager.app import Manager
from corral.manager.cluster import gpus
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.manager.nodes.holds import scheduling
from corral.manager.nodes.windows import next_start
from corral.manager.tasks.explain import expected_s, expected_start
from corral.manager.tasks.submit import Accepted
from corral.scheduler.explain.values import Start


def status_of(state: State) -> str:
    """The documents know no `assigned`: such a task still counts as queued."""
    return "queued" if state is State.ASSIGNED else str(state)


def _error(error: TaskError | None) -> ErrorOut | None:
    return ErrorOut(error.kind, error.message, error.traceback) if error else None


def _raw(text: str | None) -> Raw | None:
    return Raw(text.encode("utf-8", "surrogatepass")) if text else None


def _duration(task: Task) -> float | None:
    if task.started_at is None or task.finished_at is None:
        return None
    return max(0.0, (task.finished_at - task.started_at).total_seconds())


def accepted(manager: Manager, answer: Accepted) -> TaskAccepted:
    task, cluster = answer.task, manager.cluster
    now = manager.clock.now().timestamp()
    start = expected_start(cluster, task, now)
    return TaskAccepted(
        task.id,
        status_of(task.state),
        max(0.0, start.at - now)
        if start is not None
        else 0.0
        if task.is_terminal
        else cluster.scheduler.estimated_wait_s(task.spec.job_type),
        task.worker_id,
        task.created_at,
        expected_s(cluster, task),
        start_out(start, now),
        cached_from(task),
    )


def start_out(start: Start | None, now: float) -> StartOut | None:
    if start is None:
        return None
    at, low, high = (
        datetime.fromtimestamp(t, UTC) for t in (start.at, start.low, start.high)
    )
    return StartOut(at, low, high, round(max(0.0, start.at - now), 3))


def brief(task: Task, *, with_result: bool = True) -> TaskBrief:
    spec = task.spec
    return TaskBrief(
        task_id=spec.id,
        task_type=spec.job_type,
        status=status_of(task.state),
        priority=spec.priority,
        attempt=task.attempt,
        worker_id=task.worker_id,
        created_at=task.created_at,
        started_at=task.started_at,
        completed_at=task.finished_at,
        duration=_duration(task),
        result=_raw(task.result) if with_result else None,
        error=_error(task.error),
        labels=dict(public(spec.labels)),
        model_name=spec.model,
    )


def full(manager: Manager, task: Task, attempts: Sequence[Attempt]) -> TaskOut:
    spec = task.spec
    reason = manager.why(task)
    progress = manager.cluster.progress.get(task.id)
    constraint = constraint_of(spec.labels) or ANYWHERE
    group, group_limit = group_of(spec.labels)
    now = manager.clock.now().timestamp()
    start = None if task.is_terminal else expected_start(manager.cluster, task, now)
    short = brief(task)
    gang = gang_of(spec.labels)
    return TaskOut(
        **{name: getattr(short, name) for name in short.__struct_fields__},
        state=str(task.state),
        parameters=_raw(spec.payload),
        assigned_at=task.assigned_at,
        timeout=spec.timeout_s,
        retries=spec.retries,
        tries=task.tries,
        losses=task.losses,
        run=task.run,
        run_after=spec.run_after,
        deadline=spec.deadline,
        idempotency_key=spec.idempotency_key,
        depends_on=list(spec.depends_on),
        notify=urls_of(spec.labels),
        request_id=trace_of(spec.labels).request_id or None,
        node_labels=dict(constraint.labels),
        tolerates=sorted(constraint.tolerates),
        group=group,
        group_limit=group_limit or None,
        preemptible=PREEMPTIBLE in spec.labels,
        resources=plain(need_of(spec.labels) or NOTHING),
        gang=gang.name if gang is not None else None,
        gang_rank=gang.rank if gang is not None else None,
        gang_size=gang.size if gang is not None else None,
        node_id=task.node_id,
        assigned_worker=task.worker_id,
        progress=ProgressOut(*progress) if progress else None,
        waiting=(
            WaitingOut(reason.reason, reason.message, reason.details)
            if reason
            else None
        ),
        owner=spec.owner,
        estimated_duration=(
            None if task.is_terminal else expected_s(manager.cluster, task)
        ),
        estimate=None if task.is_terminal else estimate(manager.cluster, task),
        estimated_start=start_out(start, now),
        dead_letter=task.dead_letter,
        cached_from=cached_from(task),
        attempts=[attempt(a) for a in attempts],
    )


def attempt(row: Attempt) -> AttemptOut:
    return AttemptOut(
        attempt=row.attempt,
        run=row.run,
        outcome=row.outcome,
        worker_id=row.worker_id,
        node_id=row.node_id,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error=_error(row.error),
    )


def worker(cluster: Cluster, link: WorkerLink) -> WorkerOut:
    row = link.worker
    done = link.ran + link.failed
    speed, speed_runs = cluster.scheduler.speed(row.id)
    cards = gpus.of_worker(cluster, link)
    return WorkerOut(
        worker_id=row.id,
        name=row.spec.name,
        node_id=row.node_id,
        status=REST_STATE[row.state],
        state=str(row.state),
        worker_class=row.spec.worker_class,
        job_types=list(row.spec.job_types),
        concurrency=row.spec.concurrency,
        current_tasks=sum(len(order.left) for order in link.orders.values()),
        loaded_models=sorted(link.shelf.held),
        gpu_info=[gpu_info(card) for card in cards],
        memory_usage=_memory(link, cards),
        performance_metrics={
            "tasks_completed": link.ran,
            "tasks_failed": link.failed,
            "average_duration_s": link.busy_s / link.ran if link.ran else 0.0,
            "error_rate": link.failed / done if done else 0.0,
            "model_loads": link.loads,
            "model_load_s": link.load_s,
            "speed": round(speed, 3),
            "speed_runs": speed_runs,
            **({"gpu_utilization": gpus.mean_use(cards)} if cards else {}),
        },
        error=row.error,
        pid=row.pid,
        restarts=row.restarts,
        last_heartbeat=row.last_heartbeat,
        worker_type=row.spec.worker_type,
        environment=to_plain(row.spec.environment) if row.spec.environment else None,
        code=link.facts.get("code"),
        isolation=link.facts.get("isolation"),
        performance_score=link.ran / done if done else 1.0,
    )


def _memory(link: WorkerLink, cards: Sequence[Gpu]) -> dict[str, float]:
    """MB, as far as they are known: its processes, its models, its cards."""
    told = {
        "rss_mb": link.memory_mb or None,
        "models_mb": link.shelf.own_mb if link.shelf.held else None,
        "gpu_used_mb": sum(card.memory_used_mb or 0.0 for card in cards) or None,
        "gpu_total_mb": sum(card.memory_total_mb or 0.0 for card in cards) or None,
    }
    return {name: mb for name, mb in told.items() if mb is not None}


def gpu_info(card: Gpu) -> dict[str, Any]:
    """A worker's card in the documents' words; memory is MB, use is percent."""
    return {
        "id": card.id,
        "model": card.name,
        "name": card.name,
        "vendor": card.vendor,
        "memory_total": card.memory_total_mb,
        "memory_used": card.memory_used_mb,
        "temperature": card.temperature_c,
        "utilization": card.utilization_percent,
        "driver_version": card.driver,
        "is_simulated": card.is_simulated,
    }


def worker_detail(manager: Manager, link: WorkerLink) -> WorkerDetail:
    short = worker(manager.cluster, link)
    now = manager.clock.now()
    hours = (now - manager.started_at).total_seconds() / 3600
    done = link.ran + link.failed
    errors = link.failed / done if done else 0.0
    average_s = link.busy_s / link.ran if link.ran else 0.0
    shown = {name: getattr(short, name) for name in short.__struct_fields__}
    shown["loaded_models"] = _loaded(link)
    return WorkerDetail(
        **shown,
        system_info=_system(manager.cluster.nodes.get(link.worker.node_id)),
        task_history=TaskHistory(
            link.ran_on(now.date()), link.ran, link.failed, average_s, 1.0 - errors
        ),
        # In the first hour: those of that hour.
        metrics=WorkerMetrics(link.ran / max(hours, 1.0), average_s, errors),
    )


def _loaded(link: WorkerLink) -> list[LoadedModel]:
    return [
        LoadedModel(name, link.shelf.takes_mb(model), model.load_s, model.last_used)
        for name, model in sorted(link.shelf.held.items())
    ]


def _system(link: NodeLink | None) -> SystemInfo:
    told = link.node.capabilities if link else {}
    sample = link.sample if link else None
    return SystemInfo(
        cpu=told.get("cpu_count"),
        cpu_percent=sample.cpu_percent if sample else None,
        ram_total=sample.memory_total_mb if sample else told.get("memory_total_mb"),
        ram_used=sample.memory_used_mb if sample else None,
        os=told.get("system"),
    )


def has_gpu(row: WorkerOut, word: str) -> bool:
    """Does a GPU of this worker have `word` in its name, as `gpu_type` asks?"""
    names = (str(gpu.get("model") or gpu.get("name")) for gpu in row.gpu_info)
    return any(word.casefold() in name.casefold() for name in names)


def _percent(used: float, total: float) -> float | None:
    return 100 * used / total if total > 0 else None


def window(row: Window, now: datetime) -> WindowOut:
    return WindowOut(
        row.name,
        row.duration_s,
        row.cron,
        row.timezone,
        row.starts_at,
        row.reason,
        row.drain,
        next_start(row, now),
    )


def _hold(hold: Hold) -> HoldOut:
    told = (hold.drain, hold.since, hold.until, hold.by)
    return HoldOut(str(hold.source), hold.reason, *told)


def node(link: NodeLink, workers: Sequence[WorkerLink], now: datetime) -> NodeOut:
    row: Node = link.node
    sample: Sample | None = link.sample
    lead = link.clock.seconds
    return NodeOut(
        node_id=row.id,
        hostname=row.hostname,
        node_type=row.node_type,
        status=str(row.state),
        address=row.address,
        version=row.version,
        labels=row.all_labels,
        capabilities=row.capabilities,
        joined_at=row.joined_at,
        last_heartbeat=row.last_heartbeat,
        workers=len(workers),
        cpu_percent=sample.cpu_percent if sample else None,
        memory_percent=(
            _percent(sample.memory_used_mb, sample.memory_total_mb) if sample else None
        ),
        disk_percent=(
            _percent(sample.disk_used_gb, sample.disk_total_gb) if sample else None
        ),
        load_1m=sample.load_1m if sample else None,
        gpus=link.gpus or (),
        scheduling=scheduling(link, workers),
        holds=[_hold(hold) for hold in link.holds],
        taints=sorted(row.all_taints),
        running_tasks=sum(len(o.left) for w in workers for o in w.orders.values()),
        windows=[window(w, now) for w in row.windows],
        breakers=link.breakers or (),
        clock_skew_s=None if lead is None else round(lead, 3),
        version_skew=fit(row.version, __version__).skew,
        shares_models=sorted(link.peer.models) if link.peer else None,
    )
