"""A user's function on a real card, in the sandbox: does it see it, and nothing else?

Needs a card, torch and bubblewrap, with msgspec and `src` on the path. Prints one line
of JSON: what the function found.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import msgspec

from corral.core.tasks.environment import ArchiveEnvironment
from corral.wire.orders import Item
from corral.worker import isolation
from corral.worker.environments.cache import Cache
from corral.worker.environments.prepare import EnvironmentPolicy, prepare
from corral.worker.pool.code_bundle import FUNCTION_WORKER
from corral.worker.pool.runner_process import Exited, RunnerProcess
from corral.worker.pool.sandbox import SandboxLaunch
from corral.worker.pool.transport import RunnerSpec
from corral.worker.protocol import DoneFrame, RunFrame

CODE = """
import os, corral

@corral.task
def look():
    import torch
    card = torch.device("cuda")
    square = torch.ones(2048, 2048, device=card, dtype=torch.bfloat16)
    return {
        "card": torch.cuda.get_device_name(0),
        "cards": torch.cuda.device_count(),
        "sum": float((square @ square).float().mean()),
        "uid": os.getuid(),
        "processes": len([p for p in os.listdir("/proc") if p.isdigit()]),
        "passwords": os.access("/etc/shadow", os.R_OK),
    }
"""


def packed() -> bytes:
    box = io.BytesIO()
    with tarfile.open(fileobj=box, mode="w:gz") as tar:
        info = tarfile.TarInfo("spy.py")
        info.size = len(CODE)
        tar.addfile(info, io.BytesIO(CODE.encode()))
    return box.getvalue()


def main() -> None:
    data = packed()
    digest = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        cache = Cache(Path(name) / "cache", 1 << 30)
        level = isolation.level_for("sandbox")
        made = prepare(
            ArchiveEnvironment(digest),
            cache=cache,
            fetch=lambda _: data,
            policy=EnvironmentPolicy(),
        )
        reach = isolation.NetworkPolicy()
        launch = SandboxLaunch(cache, made, "bench", level, (), reach)
        spec = RunnerSpec(
            FUNCTION_WORKER,
            {"archive": digest, "path": ""},
            folder=made.folder,
            variables=made.variables,
            launch=launch,
        )
        began = time.monotonic()
        runner = RunnerProcess(spec, lambda _: None)
        call = {"archive": digest, "module": "spy", "function": "look"}
        payload = msgspec.Raw(msgspec.json.encode(call))
        found: dict[str, object] = {"isolation": str(level)}
        for turn in ("first_s", "next_s"):
            started = time.monotonic() if turn == "next_s" else began
            runner.send(RunFrame([Item("t", 1, payload, job_type="function")]))
            while not isinstance(frame := runner.next_event(120), DoneFrame):
                assert frame is not None, "no answer"
                assert not isinstance(frame, Exited), runner.fault or frame
            (outcome,) = frame.outcomes
            assert outcome.kind == "completed", outcome
            found |= msgspec.json.decode(outcome.result)  # type: ignore[arg-type]
            found[turn] = round(time.monotonic() - started, 3)
        runner.kill()
        runner.reap()
        made.close()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
