"""Models: what was learned of them, and which of them workers must not drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from corral.core.models.model import KnownModel, Pin
from corral.store.connection import Pool
from corral.store.model_schema import model_pins, models


class ModelStore(Protocol):
    """What the store keeps of models."""

    async def save_models(self, several: Sequence[KnownModel]) -> None:
        """Keep what is known of each; nothing else of a model's row changes."""

    async def models(self) -> Sequence[KnownModel]: ...

    async def save_pin(self, pin: Pin) -> None: ...

    async def delete_pin(self, worker_id: str, model: str) -> None: ...

    async def pins(self) -> Sequence[Pin]: ...


class Models:
    _pool: Pool

    async def save_models(self, several: Sequence[KnownModel]) -> None:
        if not several:
            return
        rows = [
            {"name": m.name, "learned_size_mb": m.size_mb, "load_s": m.load_s}
            for m in several
        ]
        statement = insert(models)
        learned = ("learned_size_mb", "load_s")
        known = statement.on_conflict_do_update(
            index_elements=["name"],
            set_={name: statement.excluded[name] for name in learned},
        )
        await self._pool.fetch(known, rows)

    async def models(self) -> Sequence[KnownModel]:
        rows = await self._pool.mappings(select(models).order_by(models.c.name))
        return [
            KnownModel(row["name"], row["learned_size_mb"], row["load_s"])
            for row in rows
        ]

    async def save_pin(self, pin: Pin) -> None:
        statement = insert(model_pins).values(asdict(pin))
        rest = ("preload", "priority", "created_at")
        await self._pool.fetch(
            statement.on_conflict_do_update(
                index_elements=list(model_pins.primary_key),
                set_={name: statement.excluded[name] for name in rest},
            )
        )

    async def delete_pin(self, worker_id: str, model: str) -> None:
        is_it = (model_pins.c.worker_id == worker_id, model_pins.c.model == model)
        await self._pool.fetch(delete(model_pins).where(*is_it))

    async def pins(self) -> Sequence[Pin]:
        order = (model_pins.c.worker_id, model_pins.c.model)
        rows = await self._pool.mappings(select(model_pins).order_by(*order))
        return [Pin(**row) for row in rows]
