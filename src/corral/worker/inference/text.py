"""Text generation with transformers: a batch of prompts, each with its own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM, GenerationConfig

from corral.worker.inference import pretrained
from corral.worker.inference.call import Call
from corral.worker.inference.choice import Choice
from corral.worker.inference.fault import Refused
from corral.worker.inference.kind import Kind
from corral.worker.inference.place import ModelRef
from corral.worker.inference.plan import Plan
from corral.worker.inference.request import Generate
from corral.worker.inference.row import Row, Rows, Spelling


@dataclass(frozen=True, slots=True)
class Prompt:
    """`ids` end with what an earlier attempt has sent; `limit` is what may follow."""

    text: str
    ids: list[int]
    limit: int
    own: int
    """How many of `ids` are the prompt's own."""


class TextModel(pretrained.Holder):
    kind = Kind.GENERATE

    def __init__(self, ref: ModelRef, plan: Plan) -> None:
        self._name = ref.name
        self._tokenizer = pretrained.load_tokenizer(ref)
        self._model = pretrained.load_model(AutoModelForCausalLM, ref, plan)
        self._device = pretrained.home_of(self._model, plan)
        self._longest = pretrained.longest(self._model, self._tokenizer)
        self._ends = _end_marks(self._model, self._tokenizer)
        super().__init__(self._model)

    def measure(self, call: Call) -> int:
        if call.made is None:
            call.made = self._read(_request(call), call.sent)
        return len(call.made.ids) + int(call.made.limit)

    def likeness(self, call: Call) -> object:
        return Kind.GENERATE

    def run(self, calls: list[Call]) -> list[dict[str, Any]]:
        prompts = [self._prompt(call) for call in calls]
        rows = [self._row(call, p) for call, p in zip(calls, prompts, strict=True)]
        for call in calls:
            call.voice.begin()
        self._generate([_request(c) for c in calls], prompts, rows)
        return [
            _answer(call.sent, prompt, row)
            for call, prompt, row in zip(calls, prompts, rows, strict=True)
        ]

    def _generate(
        self, requests: Sequence[Generate], prompts: Sequence[Prompt], rows: list[Row]
    ) -> None:
        device = self._device
        pad = self._tokenizer.pad_token_id
        fill = next(iter(sorted(self._ends)), 0) if pad is None else pad
        ids, mask = _padded([p.ids for p in prompts], fill, device)
        choice = Choice(requests, [p.ids for p in prompts], device)
        with torch.inference_mode():
            self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=GenerationConfig(
                    max_new_tokens=max(p.limit for p in prompts),
                    do_sample=False,
                    num_beams=1,
                    use_cache=True,
                    eos_token_id=sorted(self._ends) or None,
                    pad_token_id=fill,
                ),
                logits_processor=[choice] if choice.is_needed else [],
                stopping_criteria=[Rows(rows, device)],
            )

    def _read(self, request: Generate, sent: str) -> Prompt:
        text = self._spoken(request)
        ids = self._encode(text, is_chat=request.messages is not None)
        # Together, as it would be read: tokens do not end where an attempt ended.
        whole = ids
        if sent:
            whole = self._encode(text + sent, is_chat=request.messages is not None)
        if not whole:
            raise Refused("prompt: it has no token that the model knows")
        limit = request.max_tokens - (len(whole) - len(ids))
        if self._longest is not None:
            if len(whole) >= self._longest:
                raise Refused(
                    f"prompt: it has {len(whole)} tokens, and model {self._name} takes "
                    f"{self._longest} with its answer; shorten it"
                )
            limit = min(limit, self._longest - len(whole))
        return Prompt(text, whole, max(limit, 1), len(ids))

    def _encode(self, text: str, *, is_chat: bool) -> list[int]:
        # A chat template writes the beginning mark itself.
        made = self._tokenizer(text, add_special_tokens=not is_chat, verbose=False)
        return list(made["input_ids"])

    def _spoken(self, request: Generate) -> str:
        if request.messages is None:
            return request.prompt or ""
        if not self._tokenizer.chat_template:
            text = f"messages: model {self._name} has no chat template; send a prompt"
            raise Refused(text)
        turns = [{"role": m.role, "content": m.content} for m in request.messages]
        try:
            made = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise Refused(f"messages: the model's template refuses: {error}") from None
        return str(made)

    def _prompt(self, call: Call) -> Prompt:
        self.measure(call)
        assert isinstance(call.made, Prompt)
        return call.made

    def _row(self, call: Call, prompt: Prompt) -> Row:
        request = _request(call)
        spelling = Spelling(self._spell, prompt.ids)
        return Row(
            call.voice,
            spelling,
            prompt.limit,
            self._ends,
            request.stops,
            request.stream,
        )

    def _spell(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def _request(call: Call) -> Generate:
    assert isinstance(call.request, Generate)
    return call.request


def _answer(sent: str, prompt: Prompt, row: Row) -> dict[str, Any]:
    return {
        "text": sent + row.text,
        "finish_reason": row.reason or "length",
        "prompt_tokens": prompt.own,
        "tokens": len(row.tokens) + len(prompt.ids) - prompt.own,
    }


def _padded(prompts: Sequence[list[int]], fill: int, device: Any) -> tuple[Any, Any]:
    """Padded on the left, so that all go on from the same place."""
    width = max(len(ids) for ids in prompts)
    ids = [[fill] * (width - len(p)) + p for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _end_marks(model: Any, tokenizer: Any) -> frozenset[int]:
    told = getattr(model.generation_config, "eos_token_id", None)
    marks = told if isinstance(told, list) else [told, tokenizer.eos_token_id]
    return frozenset(int(mark) for mark in marks if mark is not None)
