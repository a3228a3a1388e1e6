"""Results that are kept to answer the same question again: which question is the same.

Pure. What is kept is keyed by job type, model, its revision and the input, and not by
whom asks: whoever may submit may read every task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from corral.core.models.catalogue import READY, CatalogueModel
from corral.core.tasks.job_type import JobType
from corral.core.tasks.options import ResultKey
from corral.core.tasks.task import State, Task, TaskSpec

_SAME = "same_as"
ROW_BYTES = 256
"""About what an entry takes beside its result."""
MOST_INPUT = 1 << 20
"""Longer inputs are not looked at: reading them would hold up everybody else."""
_MODEL_FIELDS = ("model", "model_name")
_CELERY = "app.tasks."
# Job types of models that draw lots unless they are given a seed, or no warmth.
_WARM = frozenset({"run_llm_inference", "llm", "text_generation"})
_LOTS = frozenset(
    {
        *("draw", "run_sd_inference", "stable_diffusion", "image_generation"),
        *("speak", "run_tts_inference", "tts"),
    }
)


@dataclass(frozen=True, slots=True)
class KeptResult:
    """An answer: `result` is JSON text, `maker` says which code gave it."""

    key: str
    job_type: str
    task_id: str
    result: str
    made_at: datetime
    maker: str = ""

    @property
    def size(self) -> int:
        return len(self.result.encode("utf-8", "surrogatepass")) + ROW_BYTES


@dataclass(frozen=True, slots=True)
class KeptTotal:
    """How many results are kept, and how many bytes they take."""

    entries: int = 0
    size: int = 0


def question_of(
    job_type: JobType, spec: TaskSpec, models: dict[str, CatalogueModel]
) -> ResultKey | None:
    """What a task asks; None where its answer is not for others, or not the same."""
    if spec.depends_on or spec.options.gang or spec.options.only_on:
        return None
    if len(spec.payload) > MOST_INPUT:
        return None
    try:
        told = json.loads(spec.payload)
        # Numbers beyond what is told apart would make two questions one.
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return None
    if not is_repeatable(job_type.name, told):
        return None
    name = _model_of(spec, told)
    model = models.get(name)
    if model is not None and spec.model is None:
        # Nobody plans for what the input alone names: which revision of it answers is
        # its worker's affair.
        return None
    version = version_of(job_type, model)
    if version is None:
        return None
    key = _digest((job_type.name, spec.model or "", version, text))
    return ResultKey(key, version, name if model is not None else "")


def is_repeatable(job_type: str, told: Any) -> bool:
    """Would the same input give the same answer, once more?

    The type says so by keeping results at all; but lots that are drawn without a seed
    fall differently each time, and a stream is to be seen as it is made.
    """
    if not isinstance(told, dict):
        return True
    if told.get("stream") or told.get("secrets"):
        # What a secret had a part in is not for those who may not have it.
        return False
    if told.get("seed") is not None:
        return True
    name = job_type.removeprefix(_CELERY)
    warmth = told.get("temperature")
    if warmth is None:
        warmth = 1.0 if name in _WARM else 0.0
    is_warm = isinstance(warmth, int | float) and warmth > 0
    return not (is_warm or told.get("do_sample") or name in _LOTS)


def version_of(job_type: JobType, model: CatalogueModel | None) -> str | None:
    """What must not change while answers stand; None while that is not known."""
    parts: list[Any] = [job_type.target, job_type.output_schema or ""]
    if model is not None:
        if model.status != READY:
            return None
        files = [(file.name, file.sha256) for file in model.files]
        parts += [model.revision, model.dtype or "", model.source, files]
    return _digest(parts)[:16]


def answered(task: Task, kept: KeptResult, now: datetime) -> Task:
    """The task as it is stored when its answer is known: it never waits or runs."""
    options = replace(task.spec.options, cached_from=kept.task_id)
    return replace(
        task,
        spec=replace(task.spec, options=options),
        state=State.COMPLETED,
        finished_at=now,
        result=kept.result,
    )


def cached_from(task: Task) -> str | None:
    """The task whose result this one was answered with; None for one that ran."""
    if task.run > 1:
        return None
    options = task.spec.options
    if task.state is State.COMPLETED and task.worker_id is None and options.same_as:
        return options.same_as
    return options.cached_from


def same_as(task_id: str) -> str:
    """What a task needs that waits for the answer of this one."""
    return f"{_SAME} {task_id}"


def awaited_in(needs: Iterable[str]) -> str | None:
    """The task whose answer is needed, if one is."""
    start = f"{_SAME} "
    return next((n.removeprefix(start) for n in needs if n.startswith(start)), None)


def _model_of(spec: TaskSpec, told: Any) -> str:
    if spec.model or not isinstance(told, dict):
        return spec.model or ""
    named = (told.get(field) for field in _MODEL_FIELDS)
    return next((name for name in named if isinstance(name, str) and name), "")


def _digest(parts: Sequence[Any]) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
