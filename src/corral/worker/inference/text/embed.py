"""Embeddings and text classification with transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from corral.worker.inference.call import ModelCall
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load import pretrained
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.text import embed_answers


class _Reader(pretrained.TorchModel):
    """Reads texts in one step."""

    auto: Any

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        self._name = ref.name
        self._tokenizer = pretrained.load_tokenizer(ref)
        self._model = pretrained.load_model(self.auto, ref, plan)
        self._device = pretrained.home_of(self._model, plan)
        self._longest = pretrained.longest(self._model, self._tokenizer)
        super().__init__(self._model)

    def measure(self, call: ModelCall) -> int:
        texts = embed_answers.asked(call).texts
        ids = self._tokenizer(texts, verbose=False)["input_ids"]
        lengths = [len(each) for each in ids]
        return embed_answers.check_lengths(call, lengths, self._longest, self._name)

    def likeness(self, call: ModelCall) -> object:
        # What may be cut must not cut the others.
        return embed_answers.asked(call).truncate

    def _read(self, calls: list[ModelCall]) -> Iterator[tuple[Any, Any]]:
        """The model's output and the mask of padding, a slice of texts at a time."""
        options: dict[str, Any] = {"padding": True, "return_tensors": "pt"}
        if embed_answers.asked(calls[0]).truncate:
            options |= {"truncation": True, "max_length": self._longest}
        for texts in embed_answers.slices(embed_answers.texts_of(calls)):
            made = self._tokenizer(texts, **options)
            inputs = pretrained.on_device(made, self._device)
            with torch.inference_mode():
                yield self._model(**inputs), made["attention_mask"].numpy()


class VectorModel(_Reader):
    kind = ModelKind.EMBED
    auto = AutoModel

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        super().__init__(ref, plan)
        self._pooling = embed_answers.pooling_of(ref.folder)

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        vectors, counts = [], []
        for output, mask in self._read(calls):
            found = output.last_hidden_state.float().cpu().numpy()
            vectors.append(embed_answers.pool(found, mask, self._pooling))
            counts.append(mask.sum(1))
        return embed_answers.vector_answers(calls, vectors, counts)


class LabelModel(_Reader):
    kind = ModelKind.CLASSIFY
    auto = AutoModelForSequenceClassification

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        config = self._model.config
        return embed_answers.label_answers(
            calls,
            [output.logits.float().cpu().numpy() for output, _ in self._read(calls)],
            {int(i): str(name) for i, name in config.id2label.items()},
            is_multi=config.problem_type == "multi_label_classification",
        )
