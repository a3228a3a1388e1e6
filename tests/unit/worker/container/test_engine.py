"""Finding an engine, and saying in one line why there is none or why it refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from docker.errors import APIError, ImageNotFound

from corral.errors import WorkerError
from corral.worker.container import boot, connection
from corral.worker.container.engine import find, usual_sockets
from corral.worker.container.job import ContainerSettings
from corral.worker.container.processes import ContainerProcesses


def test_without_any_engine_none_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find(ContainerSettings(), [tmp_path / "docker.sock"]) is None


def test_a_named_engine_that_does_not_answer_is_named(tmp_path: Path) -> None:
    host = f"unix://{tmp_path}/docker.sock"
    with pytest.raises(WorkerError, match="does not answer") as told:
        find(ContainerSettings(host=host))
    assert host in told.value.message
    assert "\n" not in told.value.message


@pytest.mark.parametrize("host", ["tcp://elsewhere:2375", "ssh://user@elsewhere"])
def test_an_engine_elsewhere_is_refused(host: str) -> None:
    with pytest.raises(WorkerError, match="no engine on this machine"):
        find(ContainerSettings(host=host))


def test_a_podman_that_cannot_serve_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho no storage here >&2\nexit 1\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(WorkerError, match="no storage here"):
        find(ContainerSettings(), [])


def test_the_usual_places_are_the_users_and_the_systems() -> None:
    names = [str(path) for path in usual_sockets()]
    assert "/var/run/docker.sock" in names
    assert f"/run/user/{os.getuid()}/podman/podman.sock" in names


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            'runc create failed: exec: "nope": executable file not found in $PATH',
            "command 'nope' is not in image 'i:1'",
        ),
        (
            'unable to start: exec: "nope": stat nope: no such file or directory',
            "command 'nope' is not in image 'i:1'",
        ),
        (
            "no space left\non device",
            "no container of 'i:1' can be started: no space left on device",
        ),
    ],
)
def test_what_an_engine_says_of_a_start_is_one_line(told: str, said: str) -> None:
    error = connection.of_start("i:1", ("nope",), APIError("x", explanation=told))
    assert error.message == said


def test_an_image_that_vanished_is_named() -> None:
    error = connection.of_start("i:1", ("x",), ImageNotFound("x", explanation="gone"))
    assert "docker pull i:1" in error.message


def test_an_unfit_python_says_what_to_install() -> None:
    path = [sys.executable, "-I", "-S", boot.__file__, "cells", "frames"]
    run = subprocess.run(path, capture_output=True, text=True, check=False)
    assert run.returncode == boot.UNFIT
    assert "`pip install msgspec` in it" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_an_old_python_says_what_to_install(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match=str(boot.UNFIT)):
        boot.main((3, 10))
    told = "its Python is 3.10: install Python 3.11 or newer in it\n"
    assert capsys.readouterr().err == told


def test_a_stranger_is_never_signalled() -> None:
    family = ContainerProcesses("0" * 64)
    assert not family.has(os.getpid())
    assert family.pids() == set()
    assert family.heeds(os.getpid(), signal.SIGTERM)
    family.send_to(os.getpid(), signal.SIGKILL)
