"""Workloads from files: one task a row, the columns named in the first.

`at_s` and `run_s` must be there; `job_type`, `model`, `priority`, `units`, `model_gb`
and `load_s` may. The published GenTD26 slice is read as it is, with the file of its
models beside it.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from corral.errors import InvalidField
from corral.scheduler.events import WaitingTask
from corral.sim.workload import GENERATE, Arrival, Model, Workload, workload

SLICE = "genai_requests.csv.gz"
SLICE_MODELS = "genai_models.csv"
HIGH = 10
_SLICE_NAMES = {"arrival_s": "at_s", "infer_s": "run_s", "images": "units"}
_DEFAULT_LOAD_S = 20.0

Row = Mapping[str, str]


def read_trace(path: Path) -> Workload:
    """The workload of a file, which may be packed with gzip.

    Raises:
        InvalidField: a column is missing, or a value is no number.
    """
    if path.is_dir():
        path = path / SLICE
    with _open(path) as file:
        rows = list(csv.DictReader(file))
    is_slice = bool(rows) and "infer_s" in rows[0]
    if is_slice:
        rows = [{_SLICE_NAMES.get(k, k): v for k, v in row.items()} for row in rows]
        for row in rows:
            row["units"] = row["units"] or "1"
    missing = {"at_s", "run_s"} - set(rows[0] if rows else ())
    if missing:
        raise InvalidField(
            f"{path}: no column {' and '.join(sorted(missing))}", field="trace"
        )
    step = HIGH if is_slice else 1
    arrivals = [_arrival(n, row, step, path) for n, row in enumerate(rows, 1)]
    if is_slice:
        with _open(path.with_name(SLICE_MODELS)) as file:
            models = _models(csv.DictReader(file), "size_gb")
    else:
        models = _models(rows, "model_gb")
    return workload(arrivals, models)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _arrival(number: int, row: Row, step: int, path: Path) -> Arrival:
    try:
        task = WaitingTask(
            task_id=f"t{number:06}",
            attempt=1,
            job_type=row.get("job_type") or GENERATE,
            seq=number,
            priority=step * int(float(row.get("priority") or 0)),
            model=row.get("model") or None,
            arrived=float(row["at_s"]),
            units=int(float(row.get("units") or 0)),
        )
        return Arrival(task, max(1e-6, float(row["run_s"])))
    except (TypeError, ValueError) as error:
        raise InvalidField(f"{path}, row {number}: {error}", field="trace") from error


def _models(rows: Iterable[Row], size: str) -> list[Model]:
    """What the rows say of models; the first word counts."""
    found: dict[str, Model] = {}
    for row in rows:
        name = row.get("model")
        if name and name not in found:
            load_s = float(row.get("load_s") or _DEFAULT_LOAD_S)
            found[name] = Model(name, float(row.get(size) or 0.0) * 1024, load_s)
    return list(found.values())
