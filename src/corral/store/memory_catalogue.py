"""The catalogue of models in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corral.core.models.catalogue import CatalogueModel
from corral.store.memory_shelf import MemoryShelf


class MemoryCatalogue(MemoryShelf):
    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        known = self._catalogue.get(model.name)
        self._catalogue[model.name] = _with_figures(model, known) if known else model

    async def save_catalogue_figures(self, several: Sequence[CatalogueModel]) -> None:
        for model in several:
            if known := self._catalogue.get(model.name):
                self._catalogue[model.name] = _with_figures(known, model)

    async def delete_catalogue_model(self, name: str) -> None:
        self._catalogue.pop(name, None)

    async def catalogue(self) -> Sequence[CatalogueModel]:
        return [self._catalogue[name] for name in sorted(self._catalogue)]


def _with_figures(model: CatalogueModel, seen: CatalogueModel) -> CatalogueModel:
    return replace(
        model,
        uses=seen.uses,
        last_used_at=seen.last_used_at,
        measures=seen.measures,
    )
