"""The same project on Corral: `python -m examples.celery_project.main` beside
`corral up`. One line adopts the app, one launches workers for it.
"""

from __future__ import annotations

from corral import Client
from corral.compat.celery import adopt, launch
from examples.celery_project.tasks import add, app, divide, fetch


def main(client: Client | None = None) -> None:
    adopt(app, client)
    workers = launch("examples.celery_project.tasks:app", client=client, concurrency=2)
    try:
        print("2 + 2 =", add.delay(2, 2).get(timeout=60))
        results = [add.delay(n, n) for n in range(100)]
        print("sum of 100 tasks:", sum(r.get(timeout=60) for r in results))
        late = fetch.apply_async(["catalogue"], {"good_try": 1}, priority=5)
        print("after a retry:", late.get(timeout=60)["retries"])
        try:
            divide.delay(1, 0).get(timeout=60)
        except ZeroDivisionError as error:
            print("failed as it should:", error)
    finally:
        for worker in workers:
            (client or Client()).stop_worker(worker.worker_id)


if __name__ == "__main__":
    main()
