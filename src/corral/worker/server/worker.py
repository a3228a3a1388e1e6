"""The worker whose models are held by servers of others. It decides nothing about which
models are served: it starts and ends what it is told, and keeps that up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any

from corral.worker.base import Context, Failure, Worker, at_hand
from corral.worker.inference import request
from corral.worker.inference.chain import filled
from corral.worker.inference.errors import RequestRefused, Unusable
from corral.worker.inference.kind import (
    ModelKind,
    RequestedKind,
    ask_of,
    is_health_check,
)
from corral.worker.inference.load.resolve import Resolver
from corral.worker.inference.request import foreign_answer
from corral.worker.server import openai_api
from corral.worker.server.balance import ReplicaGroup
from corral.worker.server.params import read_models, read_params
from corral.worker.server.resolve import ServedModels


class ServerWorker(Worker):
    """Answers requests with servers it starts and watches, one or more for each model.

    Job types: generate and embed, and the names of other systems for them. Servers
    batch by themselves, so requests of all lanes go to them at once.
    """

    # Hanging up ends a request at once; killing the runner would end every server.
    stop_grace_s = 10.0
    shares_runner = True

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._told = read_params(params)
        self._models = read_models(self._told.models)
        self._groups: dict[str, ReplicaGroup] = {}
        self._own_lock = Lock()

    def start(self) -> None:
        # Late: the settings bring more along than the other workers' runners have.
        from corral.settings import load

        place = Path(self._told.model_dir or load().model_cache_dir)
        resolver = self.resolver(place)
        self._places = ServedModels(self._told, self._models, resolver, place)
        self._places.check()

    def resolver(self, place: Path) -> Resolver:
        """Where models come from."""
        # Late: it brings the catalogue's side along.
        from corral.worker.inference.load.resolve import DepotResolver

        told = {name: model.definition() for name, model in self._models.items()}
        # A model of which nothing is said may be the catalogue's.
        return DepotResolver(place, {name: d for name, d in told.items() if d})

    def load_model(self, name: str) -> None:
        if name in self._groups:
            return
        fleet = ReplicaGroup(self._places.spec(name))
        fleet.open(self._is_wanted())
        self._groups[name] = fleet

    def unload_model(self, name: str) -> None:
        fleet = self._groups.pop(name, None)
        if fleet is not None:
            fleet.close()

    def model_memory_mb(self, name: str) -> float | None:
        fleet = self._groups.get(name)
        return fleet.memory_mb() if fleet is not None else None

    def model_sizes(self) -> Mapping[str, float]:
        return self._places.sizes()

    def canary(self) -> dict[str, Any]:
        fleets = dict(self._groups)
        return {"models": {name: fleet.describe() for name, fleet in fleets.items()}}

    def run(self, payload: Any) -> Any:
        return self._answer(payload, self.context)

    def run_batch(self, payloads: list[Any]) -> Iterator[tuple[int, Any]]:
        """All at once, each told by its place as soon as it is answered; a failure
        stands for the request that it failed.
        """
        contexts: Sequence[Context] = self.contexts
        if len(contexts) != len(payloads):
            # Whose each of them is, and of what type, nobody has told: one by one.
            raise RequestRefused("a batch needs the context of each of its tasks")
        for context in contexts:
            context.allow_to_stop(self.stop_grace_s)
        with ThreadPoolExecutor(len(payloads)) as pool:
            asked = zip(payloads, contexts, strict=True)
            doing = [pool.submit(self._settled, *each) for each in asked]
            places = {each: place for place, each in enumerate(doing)}
            for done in as_completed(doing):
                yield places[done], done.result()

    def _is_wanted(self) -> Callable[[], bool]:
        """Does a task that a model is loaded for still wait for it?

        A load takes long, and nothing but looking ends it without ending all servers.
        """
        own = getattr(self, "context", None)
        tasks = at_hand.get(()) or ([] if own is None else [own])
        return lambda: not tasks or not all(task.cancelled for task in tasks)

    def _settled(self, payload: Any, context: Context) -> Any:
        try:
            return self._answer(payload, context)
        except Failure as error:
            return error

    def _answer(self, payload: Any, context: Context) -> Any:
        if is_health_check(context.job_type):
            return {"status": "healthy", **self.canary()}
        model = self._model_of(payload, context)
        fleet = self._groups.get(model)
        if fleet is None:
            raise Unusable(f"model {model} is not served", "unknown_model")
        ask = ask_of(context.job_type) or RequestedKind(fleet.spec.kind)
        began = time.perf_counter()
        asked = request.read_request(ask, filled(payload, context.inputs))
        answer = _do(fleet, asked, ask, context)
        if not ask.is_foreign:
            return answer
        took_s = time.perf_counter() - began
        return foreign_answer(ask.kind, asked, answer, took_s, model, payload, {})

    def _model_of(self, payload: Any, context: Context) -> str:
        if context.model is not None:
            return context.model
        wanted, own = request.model_named(payload), self._told.model
        if own is not None and wanted in (None, own):
            # Nobody plans for this one: it is there as long as the worker is.
            with self._own_lock:
                self.load_model(own)
            return own
        known = wanted or "NAME"
        raise RequestRefused(
            f"say at submission which model is needed: --model {known}"
        )


def _do(
    fleet: ReplicaGroup, asked: request.Request, ask: RequestedKind, context: Context
) -> dict[str, Any]:
    if isinstance(asked, request.Generate):
        return openai_api.generate(fleet, asked, context)
    if isinstance(asked, request.Embed):
        return openai_api.embed(fleet, asked, context)
    text = f"servers do {ModelKind.GENERATE} and {ModelKind.EMBED}, not {ask.kind}"
    raise RequestRefused(text, "unsupported_type")
