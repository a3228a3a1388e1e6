"""What a job may ask of containers, and what others may do to it meanwhile.

No engine runs here: a stand-in takes Docker's calls, and swaps folders on the way.
"""

from __future__ import annotations

import base64
import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from corral.errors import WorkerError
from corral.worker.container.engine import ContainerEngine, find
from corral.worker.container.job import ContainerJob, ContainerSettings, Gpus
from corral.worker.container.policy import Bind, HeldFolders
from corral.worker.container.request import Traits, create_body
from corral.worker.isolation.job import SandboxLimits

DOCKER = Traits(version="27.0", is_podman=False, is_rootless=False)
NONE = {"message": "No such image: it"}


class StandInEngine(socketserver.ThreadingUnixStreamServer):
    """Answers as Docker does; `on` has what happens at a call, by a part of it."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Call)
        self.host = f"unix://{path}"
        self.on: dict[str, Callable[[], object]] = {}
        self.called: list[str] = []
        self.logins: list[dict[str, str]] = []
        self.has_image = False
        self.is_full = False

    def answer(self, call: str) -> tuple[int, Any]:
        if "/images/create" in call:
            self.has_image = True
            return 200, {"status": "done"}
        if "/images/" in call:
            return (200, {"Id": "i"}) if self.has_image else (404, NONE)
        if "/containers/create" in call:
            made = {"Id": "c" * 64}
            return (409, {"message": "full"}) if self.is_full else (201, made)
        if "/containers/json" in call:
            return 200, []
        if call.startswith("DELETE"):
            return 204, None
        return 200, {"Version": "27.0", "ApiVersion": "1.41"}


class _Call(BaseHTTPRequestHandler):
    server: StandInEngine

    def do_GET(self) -> None:
        engine, call = self.server, f"{self.command} {self.path}"
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        engine.called.append(call)
        if login := self.headers.get("X-Registry-Auth"):
            engine.logins.append(json.loads(base64.urlsafe_b64decode(login)))
        for part, act in engine.on.items():
            if part in call:
                act()
        status, told = engine.answer(call)
        body = b"" if told is None else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET  # noqa: N815 the base class calls them so

    def address_string(self) -> str:
        return "local"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[StandInEngine]:
    with StandInEngine(tmp_path / "d.sock") as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@contextmanager
def reached(engine: StandInEngine, **more: Any) -> Iterator[ContainerEngine]:
    found = find(ContainerSettings(host=engine.host, **more))
    assert found is not None
    try:
        yield found
    finally:
        found.close()


def job(**more: Any) -> ContainerJob:
    return ContainerJob("image:1", ("run", "it"), mark="node/task/1", **more)


def silent(stream: str, data: bytes) -> None:
    """Nothing comes of it."""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that jobs can write in, with a folder of a job's in it."""
    (tmp_path / "shared" / "mine").mkdir(parents=True)
    (tmp_path / "host").mkdir()
    return tmp_path / "shared"


def swap(shared: Path) -> None:
    """What another job does who has the whole folder as its volume."""
    (shared / "mine").rename(shared / "gone")
    (shared / "mine").symlink_to(shared.parent / "host")


def test_m7_volume_swapped_while_the_image_is_pulled_is_not_mounted(
    engine: StandInEngine, shared: Path
) -> None:
    engine.on["/images/create"] = lambda: swap(shared)
    asked = job(volumes={str(shared / "mine"): ("/in", "rw")})
    with (
        reached(engine, allowed_volumes=(str(shared),)) as found,
        pytest.raises(WorkerError, match="is not allowed"),
    ):
        found.start(asked, silent)
    assert not [call for call in engine.called if "/containers/create" in call]


def test_m7_volume_swapped_while_the_container_is_made_is_not_started(
    engine: StandInEngine, shared: Path
) -> None:
    engine.has_image = True
    engine.on["/containers/create"] = lambda: swap(shared)
    asked = job(volumes={str(shared / "mine"): ("/in", "rw")})
    with (
        reached(engine, allowed_volumes=(str(shared),)) as found,
        pytest.raises(WorkerError, match="was made a link"),
    ):
        found.start(asked, silent)
    assert not [call for call in engine.called if "/start" in call]
    assert [call for call in engine.called if call.startswith("DELETE")]


def test_m7_folder_put_back_after_the_mount_is_found_out(shared: Path) -> None:
    """What the process has mounted counts: here this one, which has no such mount."""
    held = HeldFolders([Bind(str(shared / "mine"), "/in", "rw", is_shared=True)])
    with pytest.raises(WorkerError, match="was replaced"):
        held.check_inside(os.getpid())
    held.close()
    mounted = HeldFolders([Bind("/proc", "/in", "ro", is_shared=True)])
    mounted.check_inside(os.getpid())
    mounted.close()


def test_m7_another_folder_in_its_place_is_no_link_and_refused_all_the_same(
    shared: Path,
) -> None:
    held = HeldFolders([Bind(str(shared / "mine"), "/in", "rw", is_shared=True)])
    held.check_sources()
    (shared / "mine").rename(shared / "gone")
    (shared / "mine").mkdir()
    with pytest.raises(WorkerError, match="was replaced"):
        held.check_sources()
    held.close()


@pytest.mark.parametrize(
    "folder", ["/proc/self/fd/7", "/dev/fd/7", "/sys", "/x/../proc", "proc/self/fd/7"]
)
def test_m7_working_folder_is_no_door_to_the_engine(folder: str) -> None:
    with pytest.raises(WorkerError, match="cannot work in"):
        create_body(job(working_dir=folder), ContainerSettings(), DOCKER, "me")
    create_body(job(working_dir="/work/x"), ContainerSettings(), DOCKER, "me")


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"]
)
def test_m7_variables_that_act_on_the_engine_are_refused(name: str) -> None:
    with pytest.raises(WorkerError, match=f"variable {name} is not given"):
        create_body(job(environment={name: "x"}), ContainerSettings(), DOCKER, "me")


def test_m7_image_preloads_nothing_into_the_hook_that_brings_its_cards() -> None:
    body = create_body(job(gpus=Gpus("nvidia")), ContainerSettings(), DOCKER, "me")
    assert body["environment"]["LD_PRELOAD"] == ""
    plain = create_body(job(), ContainerSettings(), DOCKER, "me")
    assert "LD_PRELOAD" not in plain["environment"]


PULLED = {
    "ubuntu": True,
    "docker.io/library/ubuntu:24.04": True,
    "evil/ubuntu": False,
    "docker.io/library-of-others/x": False,
    "registry.lan:5000/any/thing@sha256:00": True,
    "registry.lan/any/thing": False,
    "evil.example/library/ubuntu": False,
}


def test_m7_images_come_from_registries_of_the_list(engine: StandInEngine) -> None:
    listed = ("docker.io/library", "registry.lan:5000")
    engine.is_full = True
    with reached(engine, registries=listed) as found:
        for image, is_pulled in PULLED.items():
            engine.has_image = False
            with pytest.raises(WorkerError) as caught:
                found.start(ContainerJob(image, ("run",), mark="m"), silent)
            assert engine.has_image is is_pulled, image
            is_refused = "CORRAL_CONTAINER_REGISTRIES" in caught.value.message
            assert is_refused is not is_pulled


@pytest.mark.parametrize("may_log_in", [False, True])
def test_m7_images_are_pulled_as_nobody_unless_a_setting_says_otherwise(
    engine: StandInEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    may_log_in: bool,
) -> None:
    secret = base64.b64encode(b"agent:its-password").decode()
    logins = {"auths": {"registry.lan:5000": {"auth": secret}}}
    (tmp_path / "config.json").write_text(json.dumps(logins))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with reached(engine, may_log_in=may_log_in) as found:
        engine.is_full = True
        with pytest.raises(WorkerError):
            found.start(ContainerJob("registry.lan:5000/x", ("run",), "m"), silent)
    [login] = engine.logins
    assert login.get("password") == ("its-password" if may_log_in else None)


def test_m7_limits_of_a_node_hold_for_jobs_that_name_none() -> None:
    node = ContainerSettings(memory_mb=512, processes=64)
    host = create_body(job(), node, DOCKER, "me")["host_config"]
    assert (host["Memory"], host["PidsLimit"]) == (512 << 20, 64)
    own = job(limits=SandboxLimits(memory_mb=1024, processes=8))
    host = create_body(own, node, DOCKER, "me")["host_config"]
    assert (host["Memory"], host["PidsLimit"]) == (1024 << 20, 8)
