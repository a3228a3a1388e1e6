"""Image-to-text with transformers: what is to be seen on an image."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from corral.worker.inference.call import ModelCall
from corral.worker.inference.errors import RequestRefused
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load import pretrained
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.request import Caption, image_bytes
from corral.worker.inference.text.rows import BatchRow, BatchRows, TokenText


@dataclass(frozen=True, slots=True)
class InputImage:
    """`image` in colours as models want it; size and mode as it came."""

    image: Any
    size: tuple[int, int]
    mode: str


class CaptionModel(pretrained.TorchModel):
    kind = ModelKind.CAPTION

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        with pretrained.explained(ref):
            self._processor = AutoProcessor.from_pretrained(
                str(ref.folder), **pretrained.options_of(ref)
            )
        self._model = pretrained.load_model(AutoModelForImageTextToText, ref, plan)
        self._device = pretrained.home_of(self._model, plan)
        found = getattr(self._processor, "tokenizer", None)
        self._tokenizer = found or pretrained.load_tokenizer(ref)
        self._longest = pretrained.longest(self._model, self._tokenizer)
        super().__init__(self._model)

    def measure(self, call: ModelCall) -> int:
        if call.made is None:
            call.made = _open(_request(call).image)
        return self._limit(_request(call))

    def likeness(self, call: ModelCall) -> object:
        request = _request(call)
        # Prompts of several lengths would need padding that not every model takes.
        return (request.prompt, request.max_tokens)

    def _limit(self, request: Caption) -> int:
        """How many tokens the caption may have, beside the prompt and two marks."""
        if self._longest is None:
            return request.max_tokens
        ids = self._tokenizer(request.prompt, verbose=False)["input_ids"]
        left = self._longest - len(ids) - 2
        if left < 1:
            raise RequestRefused(
                f"prompt: it has {len(ids)} tokens, and the model takes "
                f"{self._longest} with its answer; shorten it"
            )
        return min(request.max_tokens, left)

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        request = _request(calls[0])
        for call in calls:
            self.measure(call)
        given: dict[str, Any] = {"images": [call.made.image for call in calls]}
        if request.prompt:
            given["text"] = [request.prompt] * len(calls)
        made = self._processor(**given, return_tensors="pt")
        device = self._device
        inputs = {
            name: tensor.to(device, self._model.dtype)
            if tensor.is_floating_point()
            else tensor.to(device)
            for name, tensor in made.items()
        }
        rows = [self._row(call) for call in calls]
        limit = GenerationConfig(
            max_new_tokens=self._limit(request), do_sample=False, num_beams=1
        )
        with torch.inference_mode():
            found = self._model.generate(
                **inputs,
                generation_config=limit,
                stopping_criteria=[BatchRows(rows, device)],
            )
        texts = self._tokenizer.batch_decode(found, skip_special_tokens=True)
        return [
            {
                "caption": _without(request.prompt, text),
                "image_size": list(call.made.size),
                "image_mode": call.made.mode,
            }
            for call, text in zip(calls, texts, strict=True)
        ]

    def _row(self, call: ModelCall) -> BatchRow:
        """Only to stop it: the words are read when all are there."""
        limit = self._limit(_request(call))
        return BatchRow(call.task, TokenText(lambda ids: "", []), limit, frozenset())


def _request(call: ModelCall) -> Caption:
    assert isinstance(call.request, Caption)
    return call.request


def _open(text: str) -> InputImage:
    try:
        with Image.open(io.BytesIO(image_bytes(text))) as image:
            return InputImage(image.convert("RGB"), image.size, image.mode)
    except Image.DecompressionBombError:
        raise RequestRefused("image: it has too many pixels") from None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        raise RequestRefused(
            "image: it is no image of a known format, or cut off"
        ) from None


def _without(prompt: str, text: str) -> str:
    """Models that go on from a prompt repeat it, in their own letters."""
    text = text.strip()
    if prompt and text.lower().startswith(prompt.lower().strip()):
        text = text[len(prompt.strip()) :].strip()
    return text
