"""The `--worker` option of `corral join` and `corral up`, read in one place.

`module:Class[=job_type[,job_type...]][xN][,gpus=CARDS]`: a class, the job types it
serves, how many runners it has, and the cards it has for itself (`WorkerSpec.gpus`). A
trailing `x` with digits is always the number, so a name that itself ends that way is
written with `x1` behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from corral.core.nodes.gpu_choice import read_wish
from corral.core.nodes.worker import WorkerSpec
from corral.core.tasks.job_type import check_name, job_type_of
from corral.errors import InvalidField

# What a machine runs when nobody said otherwise: enough to see the cluster work.
DEFAULTS = (
    "corral.worker.function:StandardWorker=echo,function",
    "corral.worker.script.worker:RunScriptWorker=run_script",
)
_SHAPE = re.compile(
    r"(?P<path>[A-Za-z_][\w.]*?[:.][A-Za-z_]\w*?)"
    r"(?:=(?P<types>.+?))?"
    r"(?:x(?P<count>[0-9]{1,4}))?"
    r"(?:,gpus=(?P<gpus>.+))?"
)


def parse(text: str, concurrency: int = 1) -> dict[str, Any]:
    """A declared worker as the register call carries it.

    `concurrency` is how many runners it has when the text does not say.

    Without job types the class names one: `EchoWorker` serves `echo`,
    `RunScriptWorker` serves `run_script`.

    Raises:
        InvalidField: when `text` does not have that shape.
    """
    found = _SHAPE.fullmatch(text.strip())
    count = int(found["count"] or concurrency) if found else 0
    if found is None or count < 1:
        raise InvalidField(
            f"worker {text!r} is not module:Class[=job_type][xN][,gpus=CARDS]",
            field="worker",
        )
    cards = (found["gpus"] or "").strip()
    read_wish(cards)
    listed = found["types"] or job_type_of(found["path"])
    types = [check_name(name.strip(), "job_type") for name in listed.split(",")]
    return {
        "name": types[0],
        "worker_class": found["path"],
        "job_types": types,
        "params": {},
        "concurrency": count,
        **({"gpus": cards} if cards else {}),
    }


def parse_all(texts: Iterable[str], concurrency: int = 1) -> tuple[WorkerSpec, ...]:
    """Several options; workers that would share a name are numbered."""
    specs: list[WorkerSpec] = []
    taken: set[str] = set()
    for text in texts:
        told = parse(text, concurrency)
        name = base = told["name"]
        number = 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        told.update(name=name, job_types=tuple(told["job_types"]))
        specs.append(WorkerSpec(**told))
    return tuple(specs)
