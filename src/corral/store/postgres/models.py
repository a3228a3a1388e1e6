"""Models: the catalogue, what was learned of them, and which are pinned where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from corral.core.models.catalogue import CatalogueModel, Measure, ModelFile
from corral.core.models.model import KnownModel, Pin
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.registry import catalogue, model_pins, models
from corral.store.text import clean

SEEN = ("uses", "last_used_at", "measures")
"""Columns that are counted, not told."""
_TOLD = tuple(c.name for c in catalogue.columns if c.name not in ("name", *SEEN))


@dataclass(frozen=True, slots=True)
class ModelRows:
    _pool: ConnectionPool

    async def save_models(self, several: Sequence[KnownModel]) -> None:
        rows = [
            {"name": m.name, "learned_size_mb": m.size_mb, "load_s": m.load_s}
            for m in several
        ]
        await self._pool.save(models, rows, only=("learned_size_mb", "load_s"))

    async def models(self) -> Sequence[KnownModel]:
        rows = await self._pool.mappings(select(models).order_by(models.c.name))
        return [
            KnownModel(row["name"], row["learned_size_mb"], row["load_s"])
            for row in rows
        ]

    async def save_pin(self, pin: Pin) -> None:
        await self._pool.save(model_pins, [asdict(pin)])

    async def delete_pin(self, worker_id: str, model: str) -> None:
        is_it = (model_pins.c.worker_id == worker_id, model_pins.c.model == model)
        await self._pool.fetch(delete(model_pins).where(*is_it))

    async def pins(self) -> Sequence[Pin]:
        order = (model_pins.c.worker_id, model_pins.c.model)
        rows = await self._pool.mappings(select(model_pins).order_by(*order))
        return [Pin(**row) for row in rows]

    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        await self._pool.save(catalogue, [_row(model)], only=_TOLD)

    async def save_catalogue_figures(self, several: Sequence[CatalogueModel]) -> None:
        if not several:
            return
        statement = (
            update(catalogue)
            .where(catalogue.c.name == bindparam("key"))
            .values({name: bindparam(f"new_{name}") for name in SEEN})
        )
        rows = [
            {"key": row["name"], **{f"new_{name}": row[name] for name in SEEN}}
            for row in map(_row, several)
        ]
        await self._pool.fetch(statement, rows)

    async def delete_catalogue_model(self, name: str) -> None:
        await self._pool.fetch(delete(catalogue).where(catalogue.c.name == clean(name)))

    async def catalogue(self) -> Sequence[CatalogueModel]:
        order = select(catalogue).order_by(catalogue.c.name)
        return [_model(row) for row in await self._pool.mappings(order)]


def _row(model: CatalogueModel) -> dict[str, Any]:
    row = asdict(model)
    row["files"] = json.dumps([list(asdict(file).values()) for file in model.files])
    row["measures"] = json.dumps([asdict(measure) for measure in model.measures])
    row["tags"] = list(model.tags)
    row["error"] = clean(model.error) if model.error is not None else None
    return row


def _model(row: Mapping[str, Any]) -> CatalogueModel:
    files = (
        ModelFile(name, size, sha256, tuple(parts))
        for name, size, sha256, parts in json.loads(row["files"])
    )
    measures = (_measure(told) for told in json.loads(row["measures"]))
    made = {"files": tuple(files), "measures": tuple(measures)}
    return CatalogueModel(**{**row, **made, "tags": tuple(row["tags"])})


def _measure(told: Mapping[str, Any]) -> Measure:
    """Rows of older managers have no peaks."""
    peaks = tuple((int(count), float(mb)) for count, mb in told.get("peaks", ()))
    return Measure(**{**told, "peaks": peaks})
