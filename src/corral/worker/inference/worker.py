"""The worker that serves models. It decides nothing about which models are in memory:
it loads and unloads what it is told, and says what that takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from corral.errors import WorkerError
from corral.worker.base import Context, Failure, Worker
from corral.worker.inference import batching, request
from corral.worker.inference.call import (
    Loaded,
    ModelCall,
    RequestTask,
    SentText,
    sent_in,
)
from corral.worker.inference.call_queue import Answer, BatchRules, CallQueue
from corral.worker.inference.chain import filled
from corral.worker.inference.errors import RequestRefused
from corral.worker.inference.kind import (
    ModelKind,
    RequestedKind,
    ask_of,
    is_health_check,
)
from corral.worker.inference.load.loaded_models import LoadedModels, LoadLimits
from corral.worker.inference.load.resolve import Resolver
from corral.worker.inference.request import foreign_answer


class InferenceParams(msgspec.Struct, forbid_unknown_fields=True):
    """What the worker is launched with; what is left out, the settings say.

    `models` are definitions by name. `model` is used by tasks that name none.
    `memory_mb` limits what all models take together. `offload_dir` takes what of a
    model fits into no memory. `max_batch_s` is what one batch may be expected to take.
    """

    models: dict[str, Any] = msgspec.field(default_factory=dict)
    model: str | None = None
    model_dir: str | None = None
    device: str = "auto"
    dtype: str | None = None
    gpu_memory_fraction: float | None = None
    memory_mb: float | None = None
    offload_dir: str | None = None
    max_batch: int = 32
    max_batch_tokens: int = 65_536
    max_batch_s: float | None = None


class InferenceWorker(Worker):
    """Answers requests with models it holds in memory.

    Job types: generate, embed, classify, caption, speak, draw, and the names of other
    systems in `kind`. Under any other name a task asks for what its model does.
    """

    # A generation that is cancelled ends after the next token; killing its runner
    # would take every warm model along.
    stop_grace_s = 10.0
    # One copy of a model serves all orders, and texts are written together.
    shares_runner = True

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        try:
            self._told = msgspec.convert(params, InferenceParams)
        except msgspec.ValidationError as error:
            raise WorkerError(f"parameters of InferenceWorker: {error}") from None
        told = self._told
        self._limits = batching.BatchLimits(
            max(told.max_batch, 1), told.max_batch_tokens, told.max_batch_s
        )
        self._pace: dict[str, batching.ModelSpeed] = {}
        self._lines: dict[str, CallQueue] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def start(self) -> None:
        # Late: the settings bring more along than the other workers' runners have.
        from corral.settings import load

        told, config = self._told, load()
        fraction = told.gpu_memory_fraction or config.gpu_memory_fraction
        try:
            resolver = self.resolver(Path(told.model_dir or config.model_cache_dir))
            limits = LoadLimits(
                device=told.device,
                allowed=config.gpu_devices,
                dtype=told.dtype,
                fraction=fraction,
                memory_mb=told.memory_mb,
                offload_dir=told.offload_dir,
            )
            self._loaded = LoadedModels(resolver, limits, self._is_busy)
        except Failure as error:
            raise WorkerError(f"parameters of InferenceWorker: {error}") from None
        self._loaded.prepare()

    def resolver(self, place: Path) -> Resolver:
        """Where models come from."""
        # Late: it knows this package.
        from corral.worker.inference.load.resolve import DepotResolver

        return DepotResolver(place, self._told.models)

    def load_model(self, name: str) -> None:
        with self._loading:
            self._loaded.load(name)

    def unload_model(self, name: str) -> None:
        self._lines.pop(name, None)
        self._loaded.unload(name)

    def model_memory_mb(self, name: str) -> float | None:
        return self._loaded.use(name).size_mb

    def model_facts(self, name: str) -> Mapping[str, Any]:
        """Where a model is and in which precision, and what its batches take."""
        return self._loaded.facts(name)

    def model_sizes(self) -> Mapping[str, float]:
        return self._loaded.sizes()

    def canary(self) -> dict[str, Any]:
        return self._loaded.describe()

    def run(self, payload: Any) -> Any:
        ((_, answer),) = self._answers([payload], [self.context])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_batch(self, payloads: list[Any]) -> list[Any] | Iterator[tuple[int, Any]]:
        """Like requests together; a failure stands for the request that it failed.

        With lanes each answer is told as soon as it is there.
        """
        contexts = getattr(self, "contexts", ())
        if len(contexts) != len(payloads):
            # Whose each of them is, and of what type, nobody has told: one by one.
            raise RequestRefused("a batch needs the context of each of its tasks")
        for context in contexts:
            context.allow_to_stop(self.stop_grace_s)
        answers = self._answers(payloads, contexts)
        if self.lanes > 1:
            return answers
        return [answer for _, answer in sorted(answers, key=lambda told: told[0])]

    def _answers(
        self, payloads: Sequence[Any], contexts: Sequence[Context]
    ) -> Iterator[tuple[int, Any]]:
        """Each payload's place and answer; an exception where there is none."""
        if all(is_health_check(context.job_type) for context in contexts):
            yield from enumerate(self._healthy() for _ in contexts)
            return
        model = self._model_of(payloads[0], contexts[0])
        loaded = self._loaded.loaded(model)
        began = time.perf_counter()
        asks: list[tuple[int, RequestedKind, ModelCall]] = []
        for i, (payload, context) in enumerate(zip(payloads, contexts, strict=True)):
            try:
                asks.append((i, *self._read(model, loaded, payload, context)))
            except Failure as error:
                yield i, error
        for number, answer in self._compute(model, loaded, [c for *_, c in asks]):
            i, ask, call = asks[number]
            if ask.is_foreign and not isinstance(answer, Exception):
                took_s, system = time.perf_counter() - began, self._loaded.describe()
                yield (
                    i,
                    foreign_answer(
                        ask.kind,
                        call.request,
                        answer,
                        took_s,
                        model,
                        payloads[i],
                        system,
                    ),
                )
            else:
                yield i, answer

    def _compute(
        self, model: str, loaded: Loaded, calls: Sequence[ModelCall]
    ) -> Iterable[tuple[int, Answer]]:
        pace = self._pace.setdefault(model, batching.ModelSpeed())
        trim, gauge = self._loaded.trim, self._loaded.gauge(model)
        if self.lanes == 1:
            limits = self._limits
            done = batching.run_all(loaded, calls, limits, pace, trim, gauge)
            return enumerate(done)
        with self._lock:
            if model not in self._lines:
                means = BatchRules(self._limits, pace, trim, gauge)
                self._lines[model] = _line_of(loaded, means, self.in_main)
            line = self._lines[model]
        return line.answers(calls)

    def _read(
        self, model: str, loaded: Loaded, payload: Any, context: Context
    ) -> tuple[RequestedKind, ModelCall]:
        ask = ask_of(context.job_type) or RequestedKind(loaded.kind)
        if ask.kind is not loaded.kind:
            text = f"model {model} is made to {loaded.kind}, not to {ask.kind}"
            raise RequestRefused(text, "unsupported_type")
        payload = filled(payload, context.inputs)
        asked, sent = request.read_request(ask, payload), SentText()
        if isinstance(asked, request.Generate) and asked.stream:
            sent = sent_in(context.emitted)
        return ask, ModelCall(asked, RequestTask(context, sent), sent)

    def _model_of(self, payload: Any, context: Context) -> str:
        if context.model is not None:
            return context.model
        wanted, own = request.model_named(payload), self._told.model
        if own is not None and wanted in (None, own):
            # Nobody plans for this one: it is there as long as the worker is.
            if not self._loaded.has(own):
                self.load_model(own)
            return own
        known = wanted or "NAME"
        raise RequestRefused(
            f"say at submission which model is needed: --model {known}"
        )

    def _is_busy(self) -> bool:
        return any(line.is_busy for line in list(self._lines.values()))

    def _healthy(self) -> dict[str, Any]:
        return {"status": "healthy", **self._loaded.describe()}


def _line_of(
    loaded: Loaded, means: BatchRules, submit: Callable[[Callable[[], None]], None]
) -> CallQueue:
    """Texts join others that are being written, where their model can do that."""
    if loaded.kind is ModelKind.GENERATE and getattr(loaded, "takes_rows", False):
        # Late: it needs torch, which a runner of exported graphs need not have.
        from corral.worker.inference.text.continuous_batching import GenerationLoop

        return GenerationLoop(loaded, means, submit)  # type: ignore[arg-type]
    return CallQueue(loaded, means, submit)
