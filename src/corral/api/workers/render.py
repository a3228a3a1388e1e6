"""From workers and worker types to the answers' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from corral.api.workers.shapes import (
    LoadedModel,
    SystemInfo,
    TaskHistory,
    WorkerDetail,
    WorkerMetrics,
    WorkerOut,
)
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.worker import REST_STATE
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.environment import to_plain
from corral.manager.cluster import gpus
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.workers import WorkerFigures
from corral.wire.workers import WorkerTypeInfo


def worker(figures: WorkerFigures) -> WorkerOut:
    link, cards = figures.link, figures.cards
    row = link.worker
    done = link.ran + link.failed
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
            "speed": round(figures.speed, 3),
            "speed_runs": figures.speed_runs,
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


def worker_detail(
    figures: WorkerFigures, now: datetime, since: datetime
) -> WorkerDetail:
    """`since` is when its tasks began to be counted."""
    link, short = figures.link, worker(figures)
    hours = (now - since).total_seconds() / 3600
    done = link.ran + link.failed
    errors = link.failed / done if done else 0.0
    average_s = link.busy_s / link.ran if link.ran else 0.0
    shown = {name: getattr(short, name) for name in short.__struct_fields__}
    shown["loaded_models"] = _loaded(link)
    return WorkerDetail(
        **shown,
        system_info=_system(figures.node),
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


def worker_type(kind: WorkerType) -> WorkerTypeInfo:
    environment = to_plain(kind.environment) if kind.environment else None
    return WorkerTypeInfo.of(kind, environment=environment, digest=kind.entry)
