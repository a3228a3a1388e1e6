"""The catalogue of models: what people said of them, and what was seen since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from corral.core.models.catalogue import CatalogueModel, Measure, ModelFile
from corral.store.connection import Pool
from corral.store.model_schema import catalogue
from corral.store.text import clean

SEEN = ("uses", "last_used_at", "measures")
"""Columns that are counted, not told."""


class CatalogueStore(Protocol):
    """What the store keeps of the catalogue."""

    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        """Add or replace what was told of it; of a known one, figures stay."""

    async def save_catalogue_figures(self, several: Sequence[CatalogueModel]) -> None:
        """Keep uses and measures of those that are there; nothing else changes."""

    async def delete_catalogue_model(self, name: str) -> None: ...

    async def catalogue(self) -> Sequence[CatalogueModel]: ...


class CatalogueRows:
    _pool: Pool

    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        statement = insert(catalogue).values(_row(model))
        told = [c.name for c in catalogue.columns if c.name not in ("name", *SEEN)]
        await self._pool.fetch(
            statement.on_conflict_do_update(
                index_elements=["name"],
                set_={name: statement.excluded[name] for name in told},
            )
        )

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
