"""The official `openai` client, on a cluster of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import openai
from openai.types.chat import ChatCompletionChunk

from tests.acceptance.cluster import Cluster, until


@contextmanager
def speaking(cluster: Cluster, models: int = 0) -> Iterator[openai.OpenAI]:
    """A client with the administrator's key, once so many models are known."""
    key = (cluster.home / "admin.key").read_text(encoding="utf-8").strip()
    with openai.OpenAI(
        base_url=f"{cluster.url}/v1", api_key=key, timeout=120, max_retries=0
    ) as made:
        until("the models are known", lambda: len(list(made.models.list())) >= models)
        yield made


def text_in(chunk: ChatCompletionChunk) -> str:
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""
