"""Text generation with transformers: a batch of prompts, each with its own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM, GenerationConfig

from corral.worker.inference.call import ModelCall, SentText
from corral.worker.inference.errors import RequestRefused
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load import pretrained
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.request import Generate
from corral.worker.inference.text.kv_cache import KvCache, takes_rows
from corral.worker.inference.text.rows import BatchRow, BatchRows, TokenText
from corral.worker.inference.text.sampling import TokenSampler


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a row begins with. `ids` are what it is spelled after; `limit` is how many
    tokens may follow those, and `done` which have been chosen already.
    """

    ids: list[int]
    limit: int
    own: int
    """How many of `ids` are the prompt's own."""
    done: tuple[int, ...] = ()
    start: str = ""
    """The text that `ids` have after the prompt."""

    @property
    def read(self) -> list[int]:
        """What the model reads before it chooses."""
        return [*self.ids, *self.done]


@dataclass(frozen=True, slots=True)
class TextDraft:
    """A text that is being written."""

    request: Generate
    prompt: Prompt
    row: BatchRow


class TextModel(pretrained.TorchModel):
    kind = ModelKind.GENERATE

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        self._name = ref.name
        self._tokenizer = pretrained.load_tokenizer(ref)
        self._model = pretrained.load_model(AutoModelForCausalLM, ref, plan)
        self.device = pretrained.home_of(self._model, plan)
        self._longest = pretrained.longest(self._model, self._tokenizer)
        self._ends = _end_marks(self._model, self._tokenizer)
        super().__init__(self._model)

    def measure(self, call: ModelCall) -> int:
        if call.made is None:
            call.made = self._read(_request(call), call.sent)
        return len(call.made.ids) + int(call.made.limit)

    def likeness(self, call: ModelCall) -> object:
        return ModelKind.GENERATE

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        drafts = [self.begin(call) for call in calls]
        # What an earlier attempt had brought to its end is only told again.
        left = [d for d in drafts if d.row.reason is None and d.prompt.limit]
        if left:
            rows = [d.row for d in left]
            self._generate([d.request for d in left], [d.prompt for d in left], rows)
        return [self.finish(draft) for draft in drafts]

    def begin(self, call: ModelCall) -> TextDraft:
        """What there is of a text before this model writes."""
        prompt = self._prompt(call)
        return TextDraft(_request(call), prompt, self._row(call, prompt))

    def finish(self, draft: TextDraft) -> dict[str, Any]:
        """The answer, once its row has ended."""
        return _answer(draft.prompt, draft.row)

    def past(self) -> KvCache:
        """Where rows are read, by those who write them one token at a time."""
        return KvCache(self._model, self._fill(), self.device)

    @property
    def takes_rows(self) -> bool:
        """May rows join while others are being written?"""
        return takes_rows(self._model)

    def _generate(
        self,
        requests: Sequence[Generate],
        prompts: Sequence[Prompt],
        rows: list[BatchRow],
    ) -> None:
        device, fill = self.device, self._fill()
        read = [p.read for p in prompts]
        ids, mask = _padded(read, fill, device)
        choice = TokenSampler(requests, read, device, [len(p.done) for p in prompts])
        with torch.inference_mode():
            self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=GenerationConfig(
                    max_new_tokens=max(p.limit - len(p.done) for p in prompts),
                    do_sample=False,
                    num_beams=1,
                    use_cache=True,
                    # What a request says counts, not what its model came with.
                    repetition_penalty=1.0,
                    eos_token_id=sorted(self._ends) or None,
                    pad_token_id=fill,
                ),
                logits_processor=[choice] if choice.is_needed else [],
                stopping_criteria=[BatchRows(rows, device)],
            )

    def _fill(self) -> int:
        pad = self._tokenizer.pad_token_id
        return next(iter(sorted(self._ends)), 0) if pad is None else int(pad)

    def _read(self, request: Generate, sent: SentText) -> Prompt:
        text = self._spoken(request)
        ids = self._encode(text, is_chat=request.messages is not None)
        if not ids:
            raise RequestRefused("prompt: it has no token that the model knows")
        limit = request.max_tokens
        if self._longest is not None:
            if len(ids) >= self._longest:
                raise RequestRefused(
                    f"prompt: it has {len(ids)} tokens, and model {self._name} takes "
                    f"{self._longest} with its answer; shorten it"
                )
            limit = min(limit, self._longest - len(ids))
        if sent.tokens is not None or not sent.text:
            return Prompt(ids, limit, len(ids), sent.tokens or ())
        # Together, as it would be read: tokens do not end where an attempt ended.
        whole = self._encode(text + sent.text, is_chat=request.messages is not None)
        left = max(limit - (len(whole) - len(ids)), 0)
        return Prompt(whole, left, len(ids), start=sent.text)

    def _encode(self, text: str, *, is_chat: bool) -> list[int]:
        # A chat template writes the beginning mark itself.
        made = self._tokenizer(text, add_special_tokens=not is_chat, verbose=False)
        return list(made["input_ids"])

    def _spoken(self, request: Generate) -> str:
        if request.messages is None:
            return request.prompt or ""
        if not self._tokenizer.chat_template:
            text = f"messages: model {self._name} has no chat template; send a prompt"
            raise RequestRefused(text)
        turns = [{"role": m.role, "content": m.content} for m in request.messages]
        try:
            made = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise RequestRefused(
                f"messages: the model's template refuses: {error}"
            ) from None
        return str(made)

    def _prompt(self, call: ModelCall) -> Prompt:
        self.measure(call)
        assert isinstance(call.made, Prompt)
        return call.made

    def _row(self, call: ModelCall, prompt: Prompt) -> BatchRow:
        request = _request(call)
        spelling = TokenText(self._spell, prompt.ids)
        row = BatchRow(
            call.task,
            spelling,
            prompt.limit,
            self._ends,
            request.stops,
            request.stream,
        )
        call.task.begin(len(prompt.start))
        row.go_on(prompt.done)
        return row

    def _spell(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def _request(call: ModelCall) -> Generate:
    assert isinstance(call.request, Generate)
    return call.request


def _answer(prompt: Prompt, row: BatchRow) -> dict[str, Any]:
    return {
        "text": prompt.start + row.text,
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
