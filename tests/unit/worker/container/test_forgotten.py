from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from corral.worker.container.processes import end_forgotten
from tests.acceptance.cluster import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Podman is for Linux")
# What stands where a monitor has the id of its container.
ID = "sleep 65001; :"
SHELL = "/bin/sh"


def test_the_process_of_a_container_nobody_knows_is_ended(tmp_path: Path) -> None:
    runtime, note = tmp_path / "runtime", tmp_path / "note"
    runtime.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {note}\n')
    runtime.chmod(0o755)
    words = ["conmon", "-c", ID, "-r", str(runtime)]
    with subprocess.Popen(words, executable=SHELL) as monitor:
        children = until("a child", psutil.Process(monitor.pid).children)
        end_forgotten("another")
        assert children[0].is_running()
        end_forgotten(ID)
        assert monitor.wait(60) == 0
    assert note.read_text().splitlines() == ["delete", "--force", ID]


def test_whoever_is_no_monitor_is_left_alone(tmp_path: Path) -> None:
    words = ["other", "-c", ID, "-r", str(tmp_path / "none")]
    with subprocess.Popen(words, executable=SHELL) as other:
        [child] = until("a child", psutil.Process(other.pid).children)
        end_forgotten(ID)
        assert child.is_running()
        child.kill()
