"""An ordinary Celery project: nothing in this file knows of Corral."""

# mypy: allow-untyped-decorators

from __future__ import annotations

import time
from typing import Any

from celery import Celery

app = Celery("celery_project", broker="redis://localhost/0")


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def divide(x: float, y: float) -> float:
    return x / y


@app.task(bind=True, max_retries=3)
def fetch(self: Any, name: str, *, good_try: int = 1) -> dict[str, Any]:
    """Fails until its `good_try`-th retry, as a service does that comes up late."""
    try:
        if self.request.retries < good_try:
            raise ConnectionError(f"{name} does not answer")
    except ConnectionError as error:
        raise self.retry(exc=error, countdown=1) from error
    return {"name": name, "retries": self.request.retries, "id": self.request.id}


@app.task(name="app.tasks.run_llm_inference")
def run_llm_inference(text: str, max_tokens: int = 50) -> dict[str, Any]:
    """Where a model would stand: it goes on with the words it was given."""
    words = text.split()[:max_tokens]
    return {
        "result": {"generated_text": " ".join(words), "input_text": text},
        "metadata": {"model_name": "parrot", "params": {"max_tokens": max_tokens}},
    }


@app.task(name="nap")
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds
