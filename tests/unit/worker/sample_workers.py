"""Worker classes as users might write them, good and bad, for the tests beside."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from queue import SimpleQueue
from typing import Any

from corral.worker import Worker
from corral.worker.base import Failure


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


class Doubler(Worker):
    def run(self, payload: Any) -> Any:
        return payload * 2


class Teller(Worker):
    """Emits words; goes on from those of an attempt before. May die on the way."""

    def run(self, payload: Any) -> Any:
        words = payload["words"]
        begun = self.context.emitted if payload.get("goes_on") else []
        for number, word in enumerate(words[len(begun) :], len(begun)):
            if number == payload.get("die_at") and not begun:
                # Its last words have a moment to be heard.
                pause(0.3)
                os._exit(9)
            self.context.emit(word)
        return {"words": words, "begun": begun}


class Choir(Worker):
    """Emits for all of a batch at once; `die` kills it in the middle, once."""

    contexts: Any = ()

    def run(self, payload: Any) -> Any:
        begun = self.context.emitted
        for word in payload["words"][len(begun) :]:
            self.context.emit(word)
        return begun

    def run_batch(self, payloads: list[Any]) -> list[Any]:
        for at in range(max(len(payload["words"]) for payload in payloads)):
            for payload, context in zip(payloads, self.contexts, strict=True):
                if at == payload.get("die_at"):
                    pause(0.3)
                    os._exit(9)
                if at == payload.get("fail_at"):
                    raise LookupError("not all at once")
                context.emit(payload["words"][at])
        return [[] for _ in payloads]


class Parametrised(Worker):
    def start(self) -> None:
        self.started = True

    def run(self, payload: Any) -> Any:
        return {"params": self.params, "started": self.started}


class Plain:
    """Derives from nothing."""

    def run(self, payload: Any) -> Any:
        return payload


class Returns(Worker):
    """Answers with a value that JSON has no place for, by name."""

    def run(self, payload: str) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return {
            "nan": float("nan"),
            "deep inf": {"a": [1.0, {"b": float("-inf")}]},
            "object": object(),
            "surrogate": "\ud800",
            "loop": loop,
            "large": "x" * (16 * 1024 * 1024),
            "big number": 2**80,
            "none": None,
            "numbers": _Array(),
        }[payload]


class _Array:
    def tolist(self) -> list[float]:
        return [1.5, 2.5]


class Raises(Worker):
    def run(self, payload: str) -> Any:
        if payload == "exit":
            sys.exit(7)
        if payload == "interrupt":
            raise KeyboardInterrupt
        if payload == "rude":
            raise _Rude
        if payload == "nul":
            raise ValueError("a\x00b\ud800c")
        return self._deeper(payload)

    def _deeper(self, payload: str) -> Any:
        raise LookupError(f"no {payload} here")


class _Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Enveloped(Worker):
    def _run(self, payload: Any) -> Any:
        return payload


class Noisy(Worker):
    def run(self, payload: dict[str, Any]) -> Any:
        print("to stdout", payload["n"])  # noqa: T201
        print("to stderr", file=sys.stderr)  # noqa: T201
        sys.stdout.buffer.write(b"raw bytes\n")
        os.write(1, b"\x00\x00\x00\x05straight to the pipe\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        self.context.log("by hand")
        sys.stdout.write("no newline at the end")
        return payload["n"]


class Chatty(Worker):
    """Prints `lines` lines of `width` characters."""

    def run(self, payload: dict[str, int]) -> Any:
        for _ in range(payload["lines"]):
            print("x" * payload["width"])  # noqa: T201
        return payload["lines"]


class Talker(Worker):
    """Reports progress, then waits for the test to let it go on by cancelling."""

    stop_grace_s = 30.0

    def run(self, payload: dict[str, Any]) -> Any:
        self.context.progress(0.25, "quarter")
        print("before the wait")  # noqa: T201
        for _ in range(3000):
            if self.context.cancelled:
                return "gave up politely"
            pause(0.02)
        return "never asked to stop"


class Curious(Worker):
    def run(self, payload: Any) -> Any:
        seen = self.context
        return [seen.task_id, seen.attempt, seen.job_type, seen.inputs, seen.labels]


class Batcher(Worker):
    """Counts how many payloads came at once; `bad` ones raise, `die` ones kill."""

    def run_batch(self, payloads: list[Any]) -> list[Any]:
        if "die" in payloads:
            os._exit(9)
        if "bad" in payloads:
            raise ValueError("bad one")
        if "long" in payloads:
            pause(60)
        if "short" in payloads:
            return payloads[:-1]
        return [
            ValueError("told by value") if p == "told" else [p, len(payloads)]
            for p in payloads
        ]


class Gated(Worker):
    """Ends once the file it is told of is there."""

    def run(self, payload: dict[str, str]) -> Any:
        while not os.path.exists(payload["until"]):
            pause(0.005)
        return True


class Gatherer(Worker):
    """Takes all at once, and ends once the file they name is there; some spoil it."""

    def run_batch(self, payloads: list[dict[str, Any]]) -> list[Any]:
        while not os.path.exists(payloads[0]["until"]):
            pause(0.005)
        if any(payload.get("spoils") for payload in payloads):
            raise ValueError("spoilt")
        return [len(payloads)] * len(payloads)


class Spawner(Worker):
    """Starts a child that outlives the task, and says its pid."""

    def run(self, payload: dict[str, Any]) -> Any:
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        child = subprocess.Popen(command)
        with open(payload["file"], "w", encoding="utf-8") as file:
            file.write(str(child.pid))
        pause(60)
        return child.pid


class Hog(Worker):
    """Keeps the interpreter to itself, as a long call into C does."""

    def run(self, payload: Any) -> Any:
        sys.setswitchinterval(1000.0)
        while True:
            pass


class Deaf(Worker):
    """Waits in a lock that nothing releases."""

    def run(self, payload: Any) -> Any:
        threading.Lock().acquire()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


class BrokenInit(Worker):
    def __init__(self, **params: Any) -> None:
        raise RuntimeError("no licence found")


class BrokenStart(Doubler):
    def start(self) -> None:
        raise OSError("weights are not there")


class DiesAtStart(Doubler):
    def start(self) -> None:
        os._exit(41)


class Nothing(Worker):
    """Defines no way to run."""


class Empty:
    pass


class Fixable(Worker):
    """Starts once the file it is told of exists."""

    def start(self) -> None:
        with open(self.params["file"], encoding="utf-8") as file:
            self.word = file.read()

    def run(self, payload: Any) -> Any:
        return self.word


class Scribbler(Worker):
    """Leaves a mark for every payload it has seen."""

    def run(self, payload: int) -> Any:
        with open(self.params["file"], "a", encoding="utf-8") as file:
            file.write(f"{payload}\n")
        pause(0.0005)
        return payload


class Secretive(Worker):
    def run(self, payload: Any) -> Any:
        return sorted(name for name in os.environ if name.startswith("CORRAL_"))


class Hoarder(Worker):
    """Keeps so many bytes, and has twice as many more for a moment."""

    kept = b""

    def run(self, payload: Any) -> int:
        passing = bytes(payload) * 2
        self.kept += passing[:payload]
        return len(self.kept)


not_a_class = 5


class Tidy(Worker):
    """Cleans up when asked to stop, or does not."""

    stop_grace_s = 30.0

    def run(self, payload: Any) -> Any:
        reasons: SimpleQueue[str] = SimpleQueue()
        self.context.on_stop(reasons.put)
        reason = reasons.get(timeout=60)
        if payload.get("deaf"):
            pause(60)
        return {"tidied": reason, "cancelled": self.context.cancelled}


class Hasty(Tidy):
    stop_grace_s = 0.5


class TidyBatch(Worker):
    """Ends some time after the first of a batch is asked to stop, or does not."""

    def run_batch(self, payloads: list[Any]) -> list[Any]:
        asked = threading.Event()
        for context in self.contexts:
            context.allow_to_stop(0.2)
            context.on_stop(lambda reason: asked.set())
        asked.wait(60)
        pause(60.0 if "deaf" in payloads else 1.0)
        return payloads


class Shows(Worker):
    """Fails, and has something to show."""

    def run(self, payload: Any) -> Any:
        output = object() if payload.get("odd") else {"left": 7}
        is_final = bool(payload.get("final"))
        raise Failure("no luck", kind="exit", output=output, is_final=is_final)


class Singer(Worker):
    def run(self, payload: Any) -> Any:
        return payload

    def canary(self) -> dict[str, str]:
        if not self.params["song"]:
            raise RuntimeError("it lost its voice")
        return {"song": self.params["song"]}


class Weights(Worker):
    """Loads any model but `bad`."""

    def load_model(self, name: str) -> None:
        if name == "bad":
            raise OSError("no weights of bad")

    def run(self, payload: Any) -> Any:
        return self.context.model


class Vague(Worker):
    """Fails when it is asked what a task took."""

    def run(self, payload: Any) -> Any:
        return payload

    def working_memory_mb(self) -> float:
        raise RuntimeError("no idea")


class Leaky(Worker):
    """Its models are 150 MB of bytes; those called leaky it never lets go of."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self.models: dict[str, bytearray] = {}
        self.lost: list[bytearray] = []

    def load_model(self, name: str) -> None:
        self.models[name] = bytearray(b"x") * (150 << 20)

    def unload_model(self, name: str) -> None:
        model = self.models.pop(name)
        if name.startswith("leaky"):
            self.lost.append(model)

    def model_memory_mb(self, name: str) -> float:
        return 150.0

    def model_facts(self, name: str) -> dict[str, Any]:
        return {"precision": "int8", "layers": {"cpu": 3}, "colour": "grey"}

    def run(self, payload: Any) -> Any:
        return sorted(self.models)
