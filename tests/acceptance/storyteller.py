"""A worker that tells a story word by word, and can be interrupted while it does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from corral import Worker
from corral.worker import Failure

STORY = [f"word{n} " for n in range(40)]
HOLD_AT = 10


class StorytellerWorker(Worker):
    """Asked to hold, it stops after some words until it is killed or cancelled; an
    attempt that has words before it goes on to the end.
    """

    stop_grace_s = 30.0

    def model_sizes(self) -> Mapping[str, float]:
        return {"story": 1.0}

    def run(self, payload: Any) -> Any:
        if self.context.job_type == "embed":
            vectors = [[float(len(text)), 0.5] for text in payload["text"]]
            return {"embeddings": vectors, "dimensions": 2, "tokens": len(vectors)}
        asked = payload.get("prompt") or payload["messages"][-1]["content"]
        if asked == "too long":
            raise Failure("prompt: too long", kind="bad_input", is_final=True)
        begun = len(self.context.emitted)
        stop = threading.Event()
        self.context.on_stop(lambda reason: stop.set())
        for number, word in enumerate(STORY[begun:], begun):
            if asked == "hold" and number == HOLD_AT and not begun:
                stop.wait()
                return {"text": "", "finish_reason": "cancelled"}
            self.context.emit({"text": word})
        return {
            "text": "".join(STORY),
            "finish_reason": "stop",
            "prompt_tokens": len(asked),
            "tokens": len(STORY),
            "begun": begun,
        }
