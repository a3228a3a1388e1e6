"""Which models can be asked for by name."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.manager.app import Manager


def known_models(manager: Manager) -> dict[str, datetime]:
    """Models of the catalogue, and those that workers hold, can name or are to keep.

    With each: since when.
    """
    found = {
        model.name: model.created_at or manager.started_at
        for model in manager.catalogue.entries.values()
    }
    for link in manager.cluster.workers.values():
        for name in link.shelf.offered:
            found.setdefault(name, manager.started_at)
        for name, held in link.shelf.held.items():
            found[name] = held.loaded_at or manager.started_at
    for worker_id, name in manager.models.pins:
        if worker_id in manager.cluster.workers:
            found.setdefault(name, manager.started_at)
    return dict(sorted(found.items()))
