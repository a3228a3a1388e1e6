"""From a submitted task to a TaskSpec: every check that needs no cluster.

The payload's text is taken over as it came; it is never decoded here. A batch that
strict JSON refuses is cut into its rows, so that only the culprit is refused.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from corral.api.body import check_depth, wrong_field
from corral.api.tasks.shapes import BatchIn
from corral.core.tasks.job_type import MODEL_TASK, check_name, check_not_own, check_text
from corral.core.tasks.needs import read_needs
from corral.core.tasks.options import (
    NO_OPTIONS,
    SpecOptions,
    check_label_names,
    checked,
)
from corral.core.tasks.priority import parse_priority
from corral.core.tasks.script import JOB_TYPE as SCRIPT
from corral.core.tasks.script import read_script
from corral.core.tasks.task import Overlap, TaskSpec
from corral.errors import CorralError, InvalidField, InvalidJson, TooLarge
from corral.manager.clock import new_task_id
from corral.wire.tasks import TaskIn

# Far beyond what any reader takes; keeps a hostile body from being walked to its end.
MAX_DEPTH = 200_000
_HEAD = re.compile(rb'\s*\{\s*"tasks"\s*:\s*\[')
_TAIL = re.compile(rb"\]\s*\}\s*")
# A whole string, a lone quote (its string never ends), brackets in runs, a comma.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\[\x00-\xff][^"\\]*+)*+"|"|[\[{]+|[\]}]+|,')
MAX_BATCH = 100_000
MAX_DEPENDENCIES = 1000
MAX_LABELS = 64
MAX_RETRIES = 1000
MAX_TIMEOUT_S = 30 * 86_400.0
ASKED = tuple(
    option.name
    for option in fields(SpecOptions)
    if option.name in TaskIn.__struct_fields__
)
"""The options that people ask for."""
_USUAL = tuple((name, getattr(TaskIn(), name)) for name in ASKED)
_decoder = msgspec.json.Decoder(TaskIn)
_batch_decoder = msgspec.json.Decoder(BatchIn)


@dataclass(frozen=True, slots=True)
class Intake:
    """What the checks need to know of the moment and the caller."""

    now: datetime
    owner: str
    task_limit: int
    default_timeout_s: float | None
    own: SpecOptions = NO_OPTIONS
    """The options that all tasks of the request have."""

    def one(self, body: bytes, idempotency_key: str | None = None) -> TaskSpec:
        """The spec of one task.

        Raises:
            InvalidJson, InvalidField, TooLarge: what is wrong with it.
        """
        task = _decode_task(body)
        if idempotency_key is not None and task.idempotency_key is None:
            task.idempotency_key = idempotency_key
        return self._spec(task)

    def many(self, body: bytes) -> list[TaskSpec | CorralError]:
        """One spec or complaint per task of a batch."""
        rows: Sequence[bytes | msgspec.Raw]
        try:
            rows = _batch_decoder.decode(body).tasks
        except msgspec.ValidationError as e:
            raise wrong_field(e, "tasks") from e
        except (msgspec.DecodeError, RecursionError):
            rows = split_rows(body)
        if len(rows) > MAX_BATCH:
            raise InvalidField(f"at most {MAX_BATCH} tasks in a batch", field="tasks")
        return [self._each(row) for row in rows]

    def _each(self, row: bytes | msgspec.Raw) -> TaskSpec | CorralError:
        try:
            return self._spec(_decode_task(row))
        except CorralError as e:
            return e

    def _spec(self, task: TaskIn) -> TaskSpec:
        job_type = check_name(task.task_type or task.job_type or "", "task_type")
        if job_type == MODEL_TASK:
            check_not_own(job_type, "task_type")
        task_id = check_name(task.task_id, "task_id") if task.task_id else ""
        if task.idempotency_key is not None:
            check_name(task.idempotency_key, "idempotency_key")
        if task.labels:
            _check_labels(task.labels)
        if task.depends_on:
            _check_dependencies(task.depends_on)
        if not 0 <= task.retries <= MAX_RETRIES:
            raise InvalidField(f"retries must be 0 to {MAX_RETRIES}", field="retries")
        payload = self._payload(task)
        if job_type == SCRIPT:
            _check_script(payload)
        return TaskSpec(
            id=task_id or new_task_id(),
            job_type=job_type,
            payload=payload,
            priority=parse_priority(task.priority),
            model=check_name(task.model_name, "model_name")
            if task.model_name
            else None,
            timeout_s=self._timeout(task.timeout, job_type),
            retries=task.retries,
            run_after=self._moment(task.run_after, "run_after"),
            deadline=self._moment(task.deadline, "deadline"),
            idempotency_key=task.idempotency_key,
            labels=task.labels,
            depends_on=tuple(dict.fromkeys(task.depends_on)),
            overlap=_overlap(task.overlap),
            owner=self.owner,
            options=_options(task, self.own, job_type),
        )

    def _payload(self, task: TaskIn) -> str:
        raw = task.parameters
        if raw is msgspec.UNSET:
            raw = task.payload
        elif task.payload is not msgspec.UNSET:
            raise InvalidField("give parameters or payload, not both", field="payload")
        if raw is msgspec.UNSET:
            return "{}"
        text = bytes(raw)
        if len(text) > self.task_limit:
            raise TooLarge(
                f"the task is {len(text)} bytes; at most {self.task_limit} are allowed",
                limit_bytes=self.task_limit,
            )
        check_depth(text)
        try:
            return text.decode()
        except UnicodeDecodeError as e:
            raise InvalidJson(f"the payload is not valid UTF-8: {e}") from e

    def _timeout(self, value: float | None, job_type: str) -> float | None:
        if value is None:
            # A training run takes the days it takes.
            return None if job_type == SCRIPT else self.default_timeout_s
        if not 0 < value <= MAX_TIMEOUT_S:
            raise InvalidField(
                f"timeout must be over 0 and at most {MAX_TIMEOUT_S:.0f} seconds",
                field="timeout",
            )
        return value

    def _moment(self, value: str | float | None, field: str) -> datetime | None:
        return None if value is None else read_moment(value, self.now, field)


def read_moment(
    value: str | float, now: datetime, field: str, zone: tzinfo = UTC
) -> datetime:
    """An ISO 8601 time, or seconds from now; one that names no zone is in `zone`."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
        elif math.isfinite(value) and abs(value) < 1e9:
            moment = now + timedelta(seconds=value)
        else:
            raise ValueError(value)
        # To UTC here: at either end of the calendar that fails, and the store must
        # not be where it does.
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(
            UTC
        )
    except (ValueError, OverflowError):
        raise InvalidField(
            f"{field} must be an ISO 8601 time or seconds from now", field=field
        ) from None


def split_rows(body: bytes) -> list[bytes]:
    """The rows of `{"tasks": [...]}`, each as it stands there.

    Raises:
        InvalidJson: the batch itself is broken, not only a row of it.
    """
    head = _HEAD.match(body)
    if head is None:
        raise InvalidJson('the body is not valid JSON, or not {"tasks": [...]}')
    cuts = [head.end() - 1, *_cuts(body, head.end())]
    rows = [body[start + 1 : end].strip() for start, end in itertools.pairwise(cuts)]
    if not all(rows) or not _TAIL.fullmatch(body, cuts[-1]):
        raise InvalidJson("the list of tasks is not valid JSON")
    return rows


def _cuts(body: bytes, start: int) -> Iterator[int]:
    """Where rows end: at the commas between them, and at the bracket after the last."""
    depth = 0
    for token in _TOKEN.finditer(body, start):
        text = token[0]
        if text == b"," and depth == 0:
            yield token.start()
        elif text[:1] in b"[{":
            depth += len(text)
        elif text[:1] in b"]}":
            if len(text) > depth:
                yield token.start() + depth
                return
            depth -= len(text)
        if text == b'"' or depth > MAX_DEPTH:
            break
    raise InvalidJson("the body is not valid JSON: a row has no end")


def _decode_task(body: bytes | msgspec.Raw) -> TaskIn:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as e:
        raise wrong_field(e, "task") from e
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise InvalidJson(f"the task is not valid JSON: {e}") from e


def _overlap(value: str) -> Overlap:
    try:
        return Overlap(value)
    except ValueError:
        raise InvalidField(
            "overlap must be 'allowed' or 'never'", field="overlap"
        ) from None


def _options(task: TaskIn, own: SpecOptions, job_type: str) -> SpecOptions:
    """What else was said of the task, beside what its request says of all."""
    told = {
        name: value for name, usual in _USUAL if (value := getattr(task, name)) != usual
    }
    if not told:
        # As it is: the store writes what all tasks of a request share once.
        return own
    for name in ("notify", "tolerates"):
        several = told.get(name, ())
        told[name] = (several,) if isinstance(several, str) else tuple(several)
    told["resources"] = read_needs(task.resources)
    return checked(replace(own, **told), job_type, task.model_name)


def _check_labels(labels: dict[str, str]) -> None:
    check_label_names(labels)
    if len(labels) > MAX_LABELS:
        raise InvalidField(f"at most {MAX_LABELS} labels are allowed", field="labels")
    for key, value in labels.items():
        check_name(key, "labels")
        check_text(value, "labels", f"label {key!r}")


def _check_dependencies(ids: list[str]) -> None:
    if len(ids) > MAX_DEPENDENCIES:
        raise InvalidField(
            f"at most {MAX_DEPENDENCIES} dependencies are allowed", field="depends_on"
        )
    for task_id in ids:
        check_name(task_id, "depends_on")


def _check_script(payload: str) -> None:
    """Said at submit, and not when the task has waited for its worker."""
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as e:
        raise InvalidJson(f"the payload is not JSON: {e}") from e
    read_script(value)
