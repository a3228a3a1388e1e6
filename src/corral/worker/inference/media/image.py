"""Image generation with diffusers."""

from __future__ import annotations

import base64
import io
import secrets
from typing import Any

import torch
from diffusers import AutoPipelineForText2Image
from diffusers.utils import logging as chatter

from corral.worker.inference.call import ModelCall
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load import pretrained
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.request import Draw

chatter.disable_progress_bar()
chatter.set_verbosity_error()


class ImageModel(pretrained.TorchModel):
    """Any pipeline from text to image, with the checks it brings along."""

    kind = ModelKind.DRAW

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        with pretrained.explained(ref):
            self._pipeline = AutoPipelineForText2Image.from_pretrained(
                str(ref.folder),
                dtype=getattr(torch, plan.dtype),
                **pretrained.options_of(ref),
            ).to(plan.device.name)
        self._pipeline.set_progress_bar_config(disable=True)
        parts = self._pipeline.components.values()
        super().__init__(*(p for p in parts if isinstance(p, torch.nn.Module)))

    def measure(self, call: ModelCall) -> int:
        request = _request(call)
        if call.made is None:
            seed = request.seed
            call.made = secrets.randbits(32) if seed is None else seed
        return request.steps

    def likeness(self, call: ModelCall) -> object:
        r = _request(call)
        return (r.width, r.height, r.steps, r.guidance)

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        first = _request(calls[0])
        for call in calls:
            self.measure(call)

        def after_step(pipeline: Any, step: int, _: Any, kept: Any) -> Any:
            if all(call.task.is_cancelled for call in calls):
                pipeline._interrupt = True
            for call in calls:
                call.task.progress((step + 1) / first.steps)
            return kept

        with torch.inference_mode():
            found = self._pipeline(
                prompt=[_request(call).prompt for call in calls],
                negative_prompt=[_request(call).negative_prompt for call in calls],
                width=first.width,
                height=first.height,
                num_inference_steps=first.steps,
                guidance_scale=first.guidance,
                # One source of chance each: its image is its own in any batch.
                generator=[torch.Generator().manual_seed(c.made) for c in calls],
                callback_on_step_end=after_step,
            )
        return [
            _answer(image, call)
            for image, call in zip(found.images, calls, strict=True)
        ]


def _request(call: ModelCall) -> Draw:
    assert isinstance(call.request, Draw)
    return call.request


def _answer(image: Any, call: ModelCall) -> dict[str, Any]:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return {
        "image": base64.b64encode(buffer.getvalue()).decode("ascii"),
        "format": "png",
        "width": image.width,
        "height": image.height,
        "steps": _request(call).steps,
        "seed": call.made,
    }
