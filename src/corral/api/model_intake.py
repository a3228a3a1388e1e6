"""What workers say of their models, as our values."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from corral.api.node_model import HeldIn, ModelsIn
from corral.core.models.model import HeldModel, Worn
from corral.errors import InvalidField
from corral.manager.cluster.held_models import ModelsWord

log = logging.getLogger(__name__)


def models_word(said: ModelsIn, lead_s: float) -> ModelsWord:
    """Times are the worker's, whose clock is `lead_s` ahead of ours."""
    return ModelsWord(
        said.number,
        [_held(model, lead_s) for model in said.held],
        {model.name: model.copies for model in said.held if model.copies > 1},
        said.sizes,
        said.restarts,
        None if said.worn is None else Worn(**msgspec.structs.asdict(said.worn)),
    )


def models_in(facts: Mapping[str, Any]) -> ModelsIn | None:
    """The same word in a beat, which repeats it.

    One that cannot be read is none: a node must not be lost for what a worker says.
    """
    told = facts.get("models")
    if told is None:
        return None
    try:
        return msgspec.convert(told, ModelsIn, str_keys=True)
    except msgspec.ValidationError as e:
        log.warning("a worker's word on its models cannot be read: %s", e)
        return None


def _held(model: HeldIn, lead_s: float) -> HeldModel:
    try:
        at = datetime.fromtimestamp(model.loaded_at - lead_s, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise InvalidField(f"{model.loaded_at} is no time", field="models") from e
    return HeldModel(
        model.name,
        model.size_mb,
        model.load_s,
        at,
        device=model.device,
        precision=model.precision,
        layers=model.layers,
        edition=model.edition,
        peaks=model.peaks,
    )
