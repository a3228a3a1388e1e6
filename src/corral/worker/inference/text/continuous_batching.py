"""Continuous batching: texts join those that are being written between two tokens, and
each goes when it is done.

Why not the continuous batching of transformers: its requests have neither seeds nor
repetition penalties nor stop words of their own, it takes its memory ahead for all
requests to come, beyond what anybody measured, and changes the model's attention. Here
every row has the same values, noise and end as in the plain way, and so the same text.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from corral.worker.inference.call import ModelCall
from corral.worker.inference.call_queue import (
    LIBRARY_ERRORS,
    BatchRules,
    CallQueue,
    QueuedCall,
)
from corral.worker.inference.errors import ModelOutOfMemory, is_out_of_memory
from corral.worker.inference.text.generate import TextModel
from corral.worker.inference.text.sampling import RowNoise, TokenSampler

PREFILL_TOKENS = 16_384
"""So much of new prompts is read between two tokens of the others, padding included."""
_GROWN = 1.5
"""Memory is looked at again when a batch is so many times as large as it was then."""


class _Text(QueuedCall):
    """A text on its way; it may have to be begun again, and goes on then."""

    def __init__(self, call: ModelCall, model: TextModel) -> None:
        super().__init__(call)
        self.cost = model.measure(call)
        self._draft = model.begin(call)
        self._finish = model.finish
        self.row = self._draft.row
        self.request = self._draft.request
        self.chance: RowNoise | None = None
        if self.request.temperature > 0.0:
            self.chance = RowNoise(self.request.seed, model.device)

    @property
    def read(self) -> list[int]:
        """Everything that is known of it, in tokens."""
        return [*self._draft.prompt.ids, *self.row.tokens]

    @property
    def last(self) -> int:
        return (self.row.tokens or self._draft.prompt.ids)[-1]

    @property
    def is_unwanted(self) -> bool:
        return self.call.task.is_cancelled

    def give_up(self) -> None:
        self.row.cancel()

    def settle(self) -> bool:
        """Is it done? What an earlier attempt had finished is so from the start."""
        if self.row.reason is None and self._draft.prompt.limit:
            return False
        self.answer = self._finish(self._draft)
        return True


class GenerationLoop(CallQueue):
    """Writes the texts of everybody who brings a call, all together."""

    def __init__(
        self,
        model: TextModel,
        means: BatchRules,
        submit: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(model, means, submit)
        self._text_model = model
        self._rows: list[_Text] = []
        self._kv_cache = model.past()
        self._sampler: TokenSampler | None = None
        self._free_mb: float | None = None
        self._fits = math.inf
        self._most = (0, 0)
        self._looked = 0
        self._watch = ExitStack()
        self._look: Callable[[], None] = lambda: None

    def _ticket(self, call: ModelCall) -> QueuedCall:
        ticket = super()._ticket(call)
        if ticket.is_done:
            return ticket
        text = _Text(call, self._text_model)
        text.settle()
        return text

    def _has_work(self) -> bool:
        return bool(self._waiting or self._rows)

    def _fail_all(self, error: BaseException) -> None:
        self._waiting += self._rows
        self._start_over()
        super()._fail_all(error)

    def _step(self) -> None:
        """One token more for all that are being written."""
        old, new = self._rows, self._admit()
        self._rows = [*old, *new]
        if self._rows:
            with torch.inference_mode():
                self._try(old, new)

    def _try(self, old: Sequence[_Text], new: Sequence[_Text]) -> None:
        began, rows, said = time.perf_counter(), self._rows, ""
        try:
            self._write(old, new)
        except LIBRARY_ERRORS as error:
            if not is_out_of_memory(error):
                self._start_over()
                self._blame(rows, error)
                return
            said = str(error)
        if said:
            # Outside the handler: the exception holds on to what was allocated.
            self._make_do(rows, said)
            return
        self._rules.pace.learn(len(rows), time.perf_counter() - began)
        self._let_go()

    def _write(self, old: Sequence[_Text], new: Sequence[_Text]) -> None:
        """One token more for every row; new rows read what they begin with."""
        scores = []
        if old:
            scores.append(self._kv_cache.step([text.last for text in old]))
        if new:
            scores.append(self._kv_cache.join([text.read for text in new]))
        choice = None if new else self._sampler
        if choice is None:
            choice = self._sampler = self._choose_anew()
        found = torch.cat(scores)
        if choice.is_needed:
            last = [[text.last] for text in self._rows]
            found = choice(torch.tensor(last, device=found.device), found)
        tokens = found.argmax(dim=-1).tolist()
        for text, token in zip(self._rows, tokens, strict=True):
            text.row.take(token)
        count, width = self._kv_cache.size
        self._most = (max(self._most[0], count), max(self._most[1], count * width))

    def _choose_anew(self) -> TokenSampler:
        rows = self._rows
        return TokenSampler(
            [text.request for text in rows],
            [text.read for text in rows],
            self._text_model.device,
            [len(text.row.tokens) for text in rows],
            [text.chance for text in rows if text.chance is not None],
        )

    def _let_go(self) -> None:
        """Those that have ended leave, and their callers hear of it."""
        left = [i for i, text in enumerate(self._rows) if not text.settle()]
        if len(left) == len(self._rows):
            return
        self._rows = [self._rows[i] for i in left]
        self._kv_cache.keep(left)
        self._sampler = None
        if not self._rows:
            self._watch.close()
        with self._changed:
            self._changed.notify_all()

    # Who may come in --------------------------------------------------------

    def _admit(self) -> list[_Text]:
        """Of those that wait, in their order, as many as the limits allow."""
        self._look_at_memory()
        with self._changed:
            waiting = [text for text in self._waiting if isinstance(text, _Text)]
            for text in waiting:
                if text.is_unwanted:
                    text.row.cancel()
                    text.settle()
                    self._changed.notify_all()
            waiting = [text for text in waiting if not text.is_done]
            new: list[_Text] = []
            while len(new) < len(waiting) and self._has_room(waiting[len(new)], new):
                new.append(waiting[len(new)])
            self._waiting = list(waiting[len(new) :])
        if new and not self._rows:
            self._begin_to_watch()
        return new

    def _has_room(self, text: _Text, new: Sequence[_Text]) -> bool:
        inside = [*self._rows, *new]
        if not inside:
            return True
        if text.is_alone or inside[0].is_alone:
            return False
        limits, pace = self._rules.limits, self._rules.pace
        count = len(inside) + 1
        if count > min(limits.count, pace.most or count):
            return False
        if new:
            longest = max(len(each.read) for each in (text, *new))
            if longest * (len(new) + 1) > PREFILL_TOKENS:
                return False
        room = min(limits.tokens, pace.tokens_in(limits.latency_s), self._fits)
        return max(each.cost for each in (text, *inside)) * count <= room

    def _look_at_memory(self) -> None:
        """What is known of memory is what a batch takes from its first row on."""
        gauge = self._rules.gauge
        if not self._rows:
            self._free_mb = gauge.free_mb()
        elif self._waiting and self._most[1] > _GROWN * self._looked:
            # Where somebody always waits, no batch ever ends.
            self._looked = self._most[1]
            self._look()
        else:
            return
        self._fits = gauge.tokens_in(self._free_mb)

    def _begin_to_watch(self) -> None:
        """From the first that comes to the last that goes."""
        self._most, self._looked, gauge = (0, 0), 0, self._rules.gauge
        self._look = self._watch.enter_context(
            gauge.watch(lambda mb: gauge.peaks.learn(*self._most, mb))
        )

    # When something breaks ---------------------------------------------------

    def _start_over(self) -> None:
        """Forget what was read: who comes in again begins with all of his text."""
        self._watch.close()
        self._rows, self._sampler = [], None
        self._kv_cache = self._text_model.past()

    def _make_do(self, rows: Sequence[_Text], said: str) -> None:
        """Memory ran out: go on with half of them, the rest waits; one alone fails."""
        self._start_over()
        self._rules.trim()
        if len(rows) == 1:
            rows[0].answer = ModelOutOfMemory(f"out of memory, even alone: {said}")
            with self._changed:
                self._changed.notify_all()
            return
        half, pace = len(rows) // 2, self._rules.pace
        pace.most = min(pace.most or half, half)
        with self._changed:
            self._waiting[:0] = rows
