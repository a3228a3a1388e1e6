"""Answers about texts that any library's numbers are turned into: vectors, labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.worker.inference.call import ModelCall
from corral.worker.inference.errors import RequestRefused
from corral.worker.inference.load.weights import read_json
from corral.worker.inference.request import Classify, Embed

Array = Any
_SLICE = 64


def texts_of(calls: Sequence[ModelCall]) -> list[str]:
    return [text for call in calls for text in asked(call).texts]


def slices(texts: list[str]) -> Iterator[list[str]]:
    """One call may bring many texts; they go through the model so many at a time."""
    for start in range(0, len(texts), _SLICE):
        yield texts[start : start + _SLICE]


def asked(call: ModelCall) -> Embed | Classify:
    assert isinstance(call.request, Embed | Classify)
    return call.request


def check_lengths(
    call: ModelCall, lengths: Sequence[int], longest: int | None, name: str
) -> int:
    """What the call costs: its longest text for each of them.

    Raises:
        Refused: a text is too long, and may not be cut.
    """
    most = max(lengths)
    if longest is not None and most > longest:
        if not asked(call).truncate:
            raise RequestRefused(
                f"text: it has {most} tokens, and model {name} takes {longest}; "
                "shorten it or set truncate"
            )
        most = longest
    return most * len(lengths)


def pooling_of(folder: Path) -> str:
    """How token vectors become one: mean, cls or last."""
    told = read_json(folder / "1_Pooling" / "config.json")
    if told.get("pooling_mode_cls_token"):
        return "cls"
    return "last" if told.get("pooling_mode_lasttoken") else "mean"


def pool(vectors: Array, mask: Array, how: str) -> Array:
    """One vector a text, of those of its tokens; padding may be on either side."""
    vectors = vectors.astype(np.float32)
    if how == "mean":
        weight = mask[:, :, None].astype(np.float32)
        return (vectors * weight).sum(1) / np.maximum(weight.sum(1), 1e-9)
    first = mask.argmax(1)
    where = first if how == "cls" else first + mask.sum(1) - 1
    return vectors[np.arange(len(vectors)), where]


def vector_answers(
    calls: Sequence[ModelCall], parts: Sequence[Array], told: Sequence[Array]
) -> list[dict[str, Any]]:
    """Of the vectors and the counts of tokens, slice by slice."""
    vectors, counts = np.concatenate(parts), np.concatenate(told)
    answers = []
    for call, rows in _shares(calls):
        found = vectors[rows]
        request = asked(call)
        if isinstance(request, Embed) and request.normalize:
            found = found / np.maximum(np.linalg.norm(found, axis=1)[:, None], 1e-12)
        answers.append(
            {
                "embeddings": found.tolist(),
                "dimensions": int(found.shape[1]),
                "tokens": int(counts[rows].sum()),
            }
        )
    return answers


def label_answers(
    calls: Sequence[ModelCall],
    parts: Sequence[Array],
    names: Mapping[int, str],
    *,
    is_multi: bool,
) -> list[dict[str, Any]]:
    scores = np.concatenate(parts).astype(np.float64)
    if is_multi or scores.shape[1] == 1:
        chances = 1.0 / (1.0 + np.exp(-scores))
    else:
        powers = np.exp(scores - scores.max(1, keepdims=True))
        chances = powers / powers.sum(1, keepdims=True)
    return [
        _labelled(asked(call), [_ranked(row, names) for row in chances[rows]])
        for call, rows in _shares(calls)
    ]


def names_of(config: Mapping[str, Any]) -> dict[int, str]:
    told = config.get("id2label") or {}
    return {int(number): str(name) for number, name in told.items()}


def _ranked(row: Array, names: Mapping[int, str]) -> list[dict[str, Any]]:
    order = np.argsort(-row, kind="stable")
    return [
        {"label": names.get(int(i), f"LABEL_{i}"), "score": float(row[i])}
        for i in order
    ]


def _labelled(
    request: Embed | Classify, ranked: list[list[dict[str, Any]]]
) -> dict[str, Any]:
    """One text has one answer, a list of texts a list of them."""
    most = request.top_k if isinstance(request, Classify) else None
    made = [{**labels[0], "labels": labels[:most]} for labels in ranked]
    return made[0] if isinstance(request.text, str) else {"results": made}


def _shares(calls: Sequence[ModelCall]) -> Iterator[tuple[ModelCall, slice]]:
    """Each call with the rows of the batch that are its own."""
    start = 0
    for call in calls:
        end = start + len(asked(call).texts)
        yield call, slice(start, end)
        start = end
