"""Answers under the names that users of other systems know, in their envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.worker.inference.kind import Kind
from corral.worker.inference.request import Caption, Draw, Generate, Request, Speak


def foreign_answer(
    kind: Kind,
    request: Request,
    answer: Mapping[str, Any],
    took_s: float,
    model: str,
    payload: Mapping[str, Any],
    system: Mapping[str, Any],
) -> dict[str, Any]:
    """`{result, metadata}`, as those tasks have always answered.

    Large inputs are not repeated in `params`.
    """
    params = {k: v for k, v in payload.items() if k not in ("image_data", "image")}
    return {
        "result": _result(kind, request, answer, took_s),
        "metadata": {
            "model_name": model,
            "execution_time": took_s,
            "params": params,
            "system_info": dict(system),
        },
    }


def _result(
    kind: Kind, request: Request, answer: Mapping[str, Any], took_s: float
) -> dict[str, Any]:
    if isinstance(request, Generate):
        text, said = str(answer["text"]), request.prompt or ""
        return {
            "generated_text": text,
            "input_text": said,
            "full_response": said + text,
            "tokens_generated": answer["tokens"],
            "processing_time": took_s,
        }
    if isinstance(request, Draw):
        return {
            **answer,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "num_inference_steps": request.steps,
            "guidance_scale": request.guidance,
        }
    if isinstance(request, Speak | Caption):
        return dict(answer)
    return {str(kind): dict(answer)}
