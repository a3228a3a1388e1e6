"""What a model has read of the texts it is writing: one row each, and rows come and go.

Rows are padded on the left to the longest, in the keys and values of every layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer

# What a model's own settings may ask of every step beside the highest score; whoever
# has any of these is left to `generate`.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": (None, []),
    "begin_suppress_tokens": (None, []),
    "cache_implementation": (None, "dynamic", "hybrid"),
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "guidance_scale": (None, 1, 1.0),
    "max_time": (None,),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "no_repeat_ngram_size": (None, 0),
    "prefill_chunk_size": (None,),
    "prompt_lookup_num_tokens": (None,),
    "remove_invalid_values": (None, False),
    "sequence_bias": (None, {}, []),
    "stop_strings": (None, []),
    "suppress_tokens": (None, []),
    "watermarking_config": (None,),
}


def takes_rows(model: Any) -> bool:
    """Can rows join and leave what this model has read?

    Not where a layer keeps only a part of it, or something else than keys and values.
    """
    if model.is_remote_code() or model.config.is_encoder_decoder:
        return False
    if not model._supports_default_dynamic_cache():
        return False
    told = model.generation_config
    if any(getattr(told, name, None) not in fine for name, fine in _NEUTRAL.items()):
        return False
    layers = DynamicCache(config=_text_config(model)).layers
    return all(type(layer) is DynamicLayer for layer in layers)


class KvCache:
    """Keys, values and which of them are no padding. Used under inference mode."""

    def __init__(self, model: Any, fill: int, device: Any) -> None:
        self._model = model
        self._fill = fill
        self._device = device
        taken = inspect.signature(model.forward).parameters
        self._has_places = "position_ids" in taken
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in taken else {}
        self._cache: Any = None
        self._mask: Any = None

    @property
    def size(self) -> tuple[int, int]:
        """How many rows there are, and how wide the longest makes them all."""
        return (0, 0) if self._mask is None else tuple(self._mask.shape)

    def step(self, tokens: Sequence[int]) -> Any:
        """Read one more token of each row; the scores of what may follow."""
        column = torch.tensor(tokens, device=self._device)[:, None]
        self._mask = pad(self._mask, (0, 1), value=1)
        places = self._mask.sum(dim=-1, keepdim=True) - 1
        return self._read(column, self._mask, places, self._cache)

    def join(self, prompts: Sequence[Sequence[int]]) -> Any:
        """Read what new rows begin with; the scores of what may follow them."""
        width = max(map(len, prompts))
        blank = [width - len(ids) for ids in prompts]
        rows = zip(prompts, blank, strict=True)
        ids = torch.tensor(
            [[self._fill] * n + list(p) for p, n in rows], device=self._device
        )
        here = torch.arange(width, device=self._device)[None, :]
        mask = (here >= torch.tensor(blank, device=self._device)[:, None]).long()
        places = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        cache = DynamicCache(config=_text_config(self._model))
        scores = self._read(ids, mask, places, cache)
        self._merge(cache, mask)
        return scores

    def keep(self, rows: Sequence[int]) -> None:
        """Let go of all other rows, and of padding that nobody needs any more."""
        if not rows:
            self._cache = self._mask = None
            return
        chosen = torch.tensor(rows, device=self._device)
        mask = self._mask[chosen]
        cut = int(mask.any(dim=0).int().argmax())
        self._mask = mask[:, cut:]
        for layer in self._cache.layers:
            layer.keys = _pick(layer.keys, chosen, cut)
            layer.values = _pick(layer.values, chosen, cut)

    def _read(self, ids: Any, mask: Any, places: Any, cache: Any) -> Any:
        told = dict(self._last_only)
        if self._has_places:
            told["position_ids"] = places
        made = self._model(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
            **told,
        )
        return made.logits[:, -1].to(device=self._device, dtype=torch.float32)

    def _merge(self, cache: Any, mask: Any) -> None:
        if self._cache is None:
            self._cache, self._mask = cache, mask
            return
        width = max(self._mask.shape[1], mask.shape[1])
        parts = [_widen(m, width, side=1) for m in (self._mask, mask)]
        self._mask = torch.cat(parts)
        for ours, theirs in zip(self._cache.layers, cache.layers, strict=True):
            ours.keys = _stack(ours.keys, theirs.keys, width)
            ours.values = _stack(ours.values, theirs.values, width)


def _text_config(model: Any) -> Any:
    return model.config.get_text_config(decoder=True)


def _stack(ours: Any, theirs: Any, width: int) -> Any:
    return torch.cat([_widen(ours, width, side=2), _widen(theirs, width, side=2)])


def _widen(tensor: Any, width: int, *, side: int) -> Any:
    """Zeros on the left of a side, until it is that wide."""
    lack = width - tensor.shape[side]
    after = [0, 0] * (tensor.dim() - 1 - side)
    return pad(tensor, (*after, lack, 0)) if lack else tensor


def _pick(tensor: Any, rows: Any, cut: int) -> Any:
    return tensor[rows.to(tensor.device)][:, :, cut:]
