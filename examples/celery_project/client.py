"""A plain Celery client: it knows a broker, a result backend and names of tasks.

Nothing here knows of Corral, or that no Celery worker is there. `corral ingress` takes
what it sends: `python -m examples.celery_project.client` with CELERY_BROKER_URL and
CELERY_RESULT_BACKEND set to the same Redis as those of the ingress.
"""

from __future__ import annotations

import os
import sys

from celery import Celery, group

TASKS = "examples.celery_project.tasks"


def main() -> None:
    app = Celery(
        "client",
        broker=os.environ["CELERY_BROKER_URL"],
        backend=os.environ["CELERY_RESULT_BACKEND"],
    )
    told = app.send_task(
        "app.tasks.run_llm_inference",
        kwargs={"text": "a horse, a horse", "max_tokens": 2},
    )
    print("generated:", told.get(timeout=60)["result"]["generated_text"])
    sums = group(app.signature(f"{TASKS}.add", (n, n)) for n in range(50))
    print("sum of 50 tasks:", sum(sums.apply_async().get(timeout=60)))
    try:
        app.send_task(f"{TASKS}.divide", (1, 0)).get(timeout=60)
    except ZeroDivisionError as error:
        print("failed as it should:", error)
    print("Corral loaded here:", "corral" in sys.modules)


if __name__ == "__main__":
    main()
