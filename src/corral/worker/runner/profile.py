"""Runs one call under a profiler and has the report of it, in the runner's process.

Nothing that goes wrong with a profiler may change how the task ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from corral.core.tasks.options import MEMORY, TORCH

TEXT = "profile.txt"
_ROWS = 60
_FRAMES = 12
MOST_BYTES = 64 << 20


class _Profiler(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def report(self) -> dict[str, bytes]: ...


class _SampleProfiler:
    """pyinstrument: where the time went, as a tree, on paper and to click through."""

    def __init__(self) -> None:
        from pyinstrument import Profiler

        self._profiler = Profiler(async_mode="disabled")

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def report(self) -> dict[str, bytes]:
        text = self._profiler.output_text(unicode=True, color=False)
        html = self._profiler.output_html()
        return {TEXT: text.encode(), "profile.html": html.encode()}


class _CallProfiler:
    """cProfile, which every Python has: calls and times by function."""

    def __init__(self) -> None:
        import cProfile

        self._profiler = cProfile.Profile()

    def start(self) -> None:
        self._profiler.enable()

    def stop(self) -> None:
        self._profiler.disable()

    def report(self) -> dict[str, bytes]:
        import io
        import marshal
        import pstats

        text = io.StringIO()
        stats = pstats.Stats(self._profiler, stream=text)
        stats.sort_stats("cumulative").print_stats(_ROWS)
        raw = marshal.dumps(stats.stats)  # type: ignore[attr-defined]
        return {TEXT: text.getvalue().encode(), "profile.pstats": raw}


class _TorchProfiler:
    """PyTorch's own: operators on processor and card, and a trace to look at."""

    def __init__(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        self._has_card = torch.cuda.is_available()
        if self._has_card:
            activities.append(ProfilerActivity.CUDA)
        self._profiler: Any = profile(activities=activities, record_shapes=True)

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def report(self) -> dict[str, bytes]:
        import gzip
        import tempfile
        from pathlib import Path

        order = "self_device_time_total" if self._has_card else "self_cpu_time_total"
        text = self._profiler.key_averages().table(sort_by=order, row_limit=_ROWS)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(trace))
            packed = gzip.compress(trace.read_bytes(), 6)
        text = text or "no operator of PyTorch has run\n"
        return {TEXT: str(text).encode(), "trace.json.gz": packed}


class _MemoryProfiler:
    """tracemalloc: what the call has taken and still holds, by the line that took it.

    Python's own memory alone: not that of cards, nor what libraries take by themselves.
    """

    def __init__(self) -> None:
        import tracemalloc

        self._tracer = tracemalloc
        self._is_mine = not tracemalloc.is_tracing()

    def start(self) -> None:
        if self._is_mine:
            self._tracer.start(_FRAMES)
        self._tracer.reset_peak()
        self._before = self._tracer.take_snapshot()
        self._began = self._tracer.get_traced_memory()[0]

    def stop(self) -> None:
        held, peak = self._tracer.get_traced_memory()
        found = self._tracer.take_snapshot()
        if self._is_mine:
            self._tracer.stop()
        self._held, self._peak = held - self._began, peak - self._began
        ours = self._tracer.Filter(False, self._tracer.__file__)
        snapshots = [s.filter_traces([ours]) for s in (found, self._before)]
        self._rows = snapshots[0].compare_to(snapshots[1], "lineno")

    def report(self) -> dict[str, bytes]:
        sizes = f"{_mb(self._peak)} at most, {_mb(self._held)} still held at its end"
        rows = [row for row in self._rows if row.size_diff][:_ROWS]
        lines = [
            f"{_mb(row.size_diff):>12} {row.count_diff:+9} {row.traceback}"
            for row in rows
        ]
        head = ["", f"{'held':>12} {'objects':>9} line"]
        return {TEXT: "\n".join([sizes, *head, *lines, ""]).encode()}


def _mb(size: float) -> str:
    return f"{size / 1e6:.3f} MB"


def _choose(kind: str) -> tuple[_Profiler, str]:
    """The best that is installed here, and a word when that is another."""
    said = ""
    if kind == MEMORY:
        return _MemoryProfiler(), said
    if kind == TORCH:
        # Not loaded for this alone: that takes seconds, and memory for good.
        if "torch" in sys.modules:
            return _TorchProfiler(), ""
        said = "PyTorch is not loaded in this worker: this is of its Python\n"
    try:
        return _SampleProfiler(), said
    except ImportError:
        return _CallProfiler(), said


class Profile:
    """One call and its report."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._profiler: _Profiler | None = None
        self._said = ""

    def call(self, does: Callable[[Any], Any], payload: Any) -> Any:
        """What `does` answers or raises, as if nobody looked."""
        self._begin()
        try:
            return does(payload)
        finally:
            self._end()

    def files(self) -> dict[str, bytes]:
        """The report by the names it is kept under; what is too long is left out."""
        found: dict[str, bytes] = {}
        if self._profiler is not None:
            try:
                found = self._profiler.report()
            except Exception as error:  # a profiler is not ours
                self._say(f"there is no report: {error}")
        kept = {n: data for n, data in found.items() if len(data) <= MOST_BYTES}
        for name in found.keys() - kept.keys():
            self._say(f"{name} is too long to be kept")
        if self._said:
            kept[TEXT] = self._said.encode() + kept.get(TEXT, b"")
        return kept

    def _begin(self) -> None:
        try:
            profiler, self._said = _choose(self._kind)
            profiler.start()
        except Exception as error:  # another one may be at work in this process
            self._say(f"the profiler did not start: {error}")
        else:
            self._profiler = profiler

    def _end(self) -> None:
        if self._profiler is None:
            return
        try:
            self._profiler.stop()
        except Exception as error:  # a profiler is not ours
            self._say(f"the profiler did not stop: {error}")
            self._profiler = None

    def _say(self, text: str) -> None:
        self._said += f"{text}\n"
        sys.stderr.write(f"{text}\n")
