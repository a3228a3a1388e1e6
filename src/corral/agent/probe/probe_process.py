"""A probe's process as the agent sees it: asked for readings, given up when it hangs.

It runs no vendor code here, so nothing a library does can stop or end the agent.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from corral.agent.probe.base import ProbeResult, from_plain
from corral.agent.probe.vendor import WAYS
from corral.process import keep_alive

_KILL_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """What came of asking; `fault` tells why there is no finding."""

    finding: ProbeResult | None = None
    fault: str | None = None
    took_s: float = 0.0


class ProbeChild:
    """One vendor's process, started when asked and kept for the next time."""

    def __init__(
        self,
        vendor: str,
        timeout_s: float = 10.0,
        environment: Mapping[str, str] | None = None,
        root: Path | None = None,
    ) -> None:
        self._vendor = vendor
        self._timeout_s = timeout_s
        self._environment = environment
        self._root = root
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._stuck: subprocess.Popen[str] | None = None
        self._skip = 0

    def ask(self) -> ProbeReading:
        """A reading; a way that fails is left out from then on, if there is another."""
        reading = self._ask_once()
        while reading.fault and self._skip + 1 < WAYS.get(self._vendor, 1):
            self._skip += 1
            reading = self._ask_once()
        return reading

    def close(self) -> None:
        """End the process; in the kernel, where no signal comes, it may take longer."""
        process, self._process = self._process, None
        if process is None:
            return
        # With the vendor's tool it may be waiting for.
        keep_alive.kill(process)
        if keep_alive.ask_to_stop(process, _KILL_WAIT_S, None) is None:
            self._stuck = process
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None and self._stuck is not process:
                    stream.close()

    def _ask_once(self) -> ProbeReading:
        try:
            stdin = self._running()
            if stdin is None:
                return ProbeReading(fault="it hangs in the driver and cannot be ended")
            stdin.write("\n")
            stdin.flush()
            line = self._answers.get(timeout=self._timeout_s)
        except queue.Empty:
            self.close()
            return ProbeReading(fault=f"it did not answer within {self._timeout_s:g} s")
        except OSError as error:
            self.close()
            return ProbeReading(fault=f"its process cannot be used: {error}")
        return self._read(line)

    def _read(self, line: str | None) -> ProbeReading:
        if line is None:
            code = self._process.wait() if self._process else None
            self.close()
            return ProbeReading(fault=f"its process ended with {code}")
        try:
            told = json.loads(line)
        except ValueError:
            self.close()
            return ProbeReading(fault="its process did not answer in JSON")
        took_s = float(told.get("took_s", 0.0))
        if "fault" in told:
            self.close()
            return ProbeReading(fault=str(told["fault"]), took_s=took_s)
        return ProbeReading(from_plain(told), took_s=took_s)

    def _running(self) -> IO[str] | None:
        """Where to ask; None while the last process will not die."""
        if self._stuck is not None and self._stuck.poll() is None:
            return None
        self._stuck = None
        if self._process is not None and self._process.poll() is not None:
            self.close()
        process = self._process or self._start()
        return process.stdin

    def _start(self) -> subprocess.Popen[str]:
        argv = [*keep_alive.python_command("corral.agent.probe", self._vendor)]
        argv += ["--skip", str(self._skip)]
        if self._root is not None:
            argv += ["--root", str(self._root)]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=None if self._environment is None else dict(self._environment),
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self._process = process
        self._answers = answers = queue.Queue[str | None]()
        threading.Thread(
            target=_pump, args=(process.stdout, answers), name="probe", daemon=True
        ).start()
        return process


def _pump(stream: Any, answers: queue.Queue[str | None]) -> None:
    """Lines into a queue, which can be waited on with a limit on every system."""
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            answers.put(line)
    answers.put(None)
