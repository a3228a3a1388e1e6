"""The Celery application that `bench/bulk.py` measures beside Corral.

Its broker comes by the environment, because the password in it is nobody's business.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

URL_VARIABLE = "BENCH_CELERY_URL"

app = Celery("bench", broker=os.environ[URL_VARIABLE], backend=os.environ[URL_VARIABLE])
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    task_send_sent_event=False,
)


@app.task(name="bench.echo")  # type: ignore[untyped-decorator]
def echo(payload: dict[str, Any]) -> dict[str, Any]:
    """What Corral's echo does, in Celery's words."""
    return {"echoed": payload["message"]}
