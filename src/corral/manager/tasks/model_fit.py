"""Whether a model fits anywhere, said before a task waits for it."""

from __future__ import annotations

from corral.core.models.catalogue import CatalogueModel
from corral.core.tasks.task import TaskSpec
from corral.errors import InvalidField
from corral.manager.cluster import gpus
from corral.manager.cluster.state import Cluster

_WEIGHTS = (".safetensors", ".bin", ".onnx", ".pt")
_MB = 1024 * 1024


def check_room(cluster: Cluster, model: CatalogueModel | None, spec: TaskSpec) -> None:
    """Refuse a task whose model no worker for it could ever hold.

    Of a model that is not in the catalogue counts what workers say it takes. Those
    without cards of their own may hold anything, and so may those that demand starts.

    Raises:
        InvalidField: with the largest card.
    """
    if spec.model is None or _grows(cluster, spec.job_type):
        return
    known_mb, _ = cluster.scheduler.known_model(spec.model)
    need_mb = known_mb if model is None else least_mb(model)
    links = [
        link
        for link in cluster.workers.values()
        if spec.job_type in link.worker.spec.job_types
    ]
    known = [link.shelf.limit_mb for link in links]
    limits = [limit for limit in known if limit is not None]
    if need_mb is None or not limits or len(limits) < len(links):
        return
    if need_mb <= max(limits):
        return
    best = max(links, key=lambda link: link.shelf.limit_mb or 0.0)
    cards = ", ".join(card.name for card in gpus.of_worker(cluster, best))
    raise InvalidField(
        f"model {spec.model} takes {need_mb:.0f} MB of GPU memory at least, and the "
        f"largest card ({cards} of {best.worker.node_id}) has {max(limits):.0f} MB "
        "for models",
        field="model_name",
    )


def _grows(cluster: Cluster, job_type: str) -> bool:
    """May demand start workers for it that are not there yet?"""
    kinds = cluster.worker_types.values()
    return any(kind.job_type == job_type and kind.max_workers for kind in kinds)


def least_mb(model: CatalogueModel) -> float | None:
    """GPU memory it takes at least: as seen or told, else by its files.

    Weights may be stored in full precision and loaded in half of it.
    """
    if model.needs_mb is not None:
        return model.needs_mb
    sizes = [file.size for file in model.files if file.name.endswith(_WEIGHTS)]
    return sum(sizes) / 2 / _MB if sizes else None
