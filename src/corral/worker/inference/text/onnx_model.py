"""Embeddings and text classification from exported graphs, with ONNX Runtime.

Needs neither torch nor transformers: a folder with model.onnx, tokenizer.json and, for
names of labels, config.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as states
from tokenizers import Tokenizer

from corral.worker.inference.call import ModelCall
from corral.worker.inference.errors import ModelOutOfMemory, Unusable, is_out_of_memory
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.load.weights import read_json, size_mb
from corral.worker.inference.text import embed_answers

_PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "directml": "DmlExecutionProvider",
    "mps": "CoreMLExecutionProvider",
}
_MULTI = "multi_label_classification"
_BROKEN = (states.InvalidProtobuf, states.InvalidGraph, states.Fail, states.NoSuchFile)


class GraphModel:
    """A graph of either kind; its first output is token vectors or scores."""

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        self.kind = ref.kind
        if ref.kind not in (ModelKind.EMBED, ModelKind.CLASSIFY):
            text = f"model {ref.name} is a graph, which cannot {ref.kind} here"
            raise Unusable(text, "unsupported_model")
        self._name = ref.name
        self._size_mb = size_mb(ref.folder, 4) or 0.0
        self._config = read_json(ref.folder / "config.json")
        self._pooling = embed_answers.pooling_of(ref.folder)
        self._tokenizer = _tokenizer(ref)
        self._session = _session(ref, plan)
        self._inputs = [given.name for given in self._session.get_inputs()]
        told = self._config.get("max_position_embeddings")
        self._longest = told if isinstance(told, int) else None

    def measure(self, call: ModelCall) -> int:
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        read = self._tokenizer.encode_batch(embed_answers.asked(call).texts)
        lengths = [len(each.ids) for each in read]
        return embed_answers.check_lengths(call, lengths, self._longest, self._name)

    def likeness(self, call: ModelCall) -> object:
        return embed_answers.asked(call).truncate

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        is_cut = embed_answers.asked(calls[0]).truncate
        found, counts = [], []
        for texts in embed_answers.slices(embed_answers.texts_of(calls)):
            inputs, mask = self._encode(texts, is_cut=is_cut)
            output = self._compute(inputs)
            if output.ndim == 3:
                output = embed_answers.pool(output, mask, self._pooling)
            found.append(output)
            counts.append(mask.sum(1))
        if self.kind is ModelKind.EMBED:
            return embed_answers.vector_answers(calls, found, counts)
        names = embed_answers.names_of(self._config)
        is_multi = self._config.get("problem_type") == _MULTI
        return embed_answers.label_answers(calls, found, names, is_multi=is_multi)

    def weights_mb(self) -> float:
        return self._size_mb

    def unload(self) -> None:
        self.__dict__.clear()

    def _compute(self, inputs: dict[str, Any]) -> Any:
        try:
            return self._session.run(None, inputs)[0]
        except states.RuntimeException as error:
            if is_out_of_memory(error):
                raise MemoryError(str(error)) from None
            raise

    def _encode(self, texts: list[str], *, is_cut: bool) -> tuple[dict[str, Any], Any]:
        self._tokenizer.enable_padding(pad_id=self._config.get("pad_token_id") or 0)
        if is_cut and self._longest:
            self._tokenizer.enable_truncation(self._longest)
        read = self._tokenizer.encode_batch(texts)
        made = {
            "input_ids": np.array([each.ids for each in read], dtype=np.int64),
            "attention_mask": np.array(
                [each.attention_mask for each in read], dtype=np.int64
            ),
            "token_type_ids": np.array(
                [each.type_ids for each in read], dtype=np.int64
            ),
        }
        given = {name: made[name] for name in self._inputs if name in made}
        return given, made["attention_mask"]


def _tokenizer(ref: ModelRef) -> Any:
    file = ref.folder / "tokenizer.json"
    if not file.is_file():
        text = f"model {ref.name} has no tokenizer.json beside its graph"
        raise Unusable(text, "unsupported_model")
    read_json(file)
    return Tokenizer.from_file(str(file))


def _session(ref: ModelRef, plan: DevicePlan) -> Any:
    there = onnxruntime.get_available_providers()
    wanted = [_PROVIDERS.get(plan.device.kind, ""), "CPUExecutionProvider"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    graph: Path = ref.folder / "model.onnx"
    try:
        return onnxruntime.InferenceSession(
            str(graph), options, providers=[name for name in wanted if name in there]
        )
    except _BROKEN as error:
        if is_out_of_memory(error):
            text = f"no memory to load model {ref.name}: {error}"
            raise ModelOutOfMemory(text) from None
        text = f"{ref.folder.name}/{graph.name} is corrupt: {error}"
        raise Unusable(text, "corrupt_model") from None
