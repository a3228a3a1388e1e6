"""`corral join` as users run it: its one line and its exit code."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.acceptance.cluster import free_port
from tests.unit.agent.standin import NODE, TOKEN, StandInManager


def begin(home: Path, url: str, *args: str, **env: str) -> warm.Command:
    path = os.pathsep.join(p for p in sys.path if p)
    return warm.corral(
        *("join", url, "--home", str(home), *args),
        variables={**os.environ, "PYTHONPATH": path, **env},
        folder=home,
    )


def test_join_serves_with_a_token_from_the_environment_until_it_is_stopped(
    manager: StandInManager, tmp_path: Path
) -> None:
    option = "a.b:C=doublex3"
    process = begin(tmp_path, manager.url, "--worker", option, CORRAL_JOIN_TOKEN=TOKEN)
    try:
        manager.wait_for(lambda: manager.beats)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert f"as node {NODE}" in said
    declared = manager.registrations[0]["workers"]
    assert [(w["name"], w["concurrency"]) for w in declared] == [("double", 3)]


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (["--token", "corral_t1_wrong"], 1, "the manager refused the join token"),
        ([], 1, "give a join token"),
        (["--token", TOKEN, "--worker", "nonsense"], 2, "module:Class"),
        (["--token", TOKEN, "--token-file", "t"], 2, "not both"),
        (["--token-file", "missing"], 1, "missing"),
    ],
)
def test_a_join_that_cannot_work_says_why_in_one_line(
    manager: StandInManager, tmp_path: Path, args: list[str], code: int, line: str
) -> None:
    process = begin(tmp_path, manager.url, *args)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    errors = [text for text in said.splitlines() if text.startswith("Error: ")]
    assert len(errors) == 1
    assert line in errors[0]
    assert "Traceback" not in said


def test_a_join_nobody_answers_gives_up_with_exit_code_3(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    process = begin(tmp_path, url, "--token", TOKEN, WORKER_REGISTRATION_TIMEOUT="0.2")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "does not answer" in said
