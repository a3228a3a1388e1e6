"""Code that users send: only what was sent as code is run, and in a sandbox."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import tarfile
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from corral.worker.isolation import network
from corral.worker.isolation.network import GATEWAY
from tests.acceptance.cluster import until
from tests.security.conftest import CANARY, Attacked

# What it could see of the machine it runs on; `HOME` is the manager's data folder.
LOOK = """
import ctypes, os, pathlib, socket

def readable(path):
    try:
        return pathlib.Path(path).read_text()[:40]
    except OSError as error:
        return type(error).__name__

def refused(number):
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(number, 0x10000000, 0, 0, 0, 0) == -1

def reached(*places):
    found = []
    for place in places:
        with socket.socket() as probe:
            probe.settimeout(5)
            if probe.connect_ex(tuple(place)) == 0:
                found.append(list(place))
    return found

def look(home, places):
    return {
        "reached": reached(*places),
        "uid": os.getuid(),
        "key": readable(home + "/admin.key"),
        "home": os.listdir(home),
        "mine": sorted(p for p in os.listdir("/proc") if p.isdigit()).__len__(),
        "agent": [
            path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
            if b"corral" in path.read_bytes().replace(b"/run/corral/launch.py", b"")
            and b"runner" not in path.read_bytes()
        ].__len__(),
        "unshare": refused(272),
        "keyctl": refused(250),
        "secrets": [k for k in os.environ if k.endswith(("KEY", "TOKEN", "SECRET"))],
    }
"""


def archive(**files: str) -> bytes:
    box = io.BytesIO()
    with tarfile.open(fileobj=box, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return box.getvalue()


def sent(http: httpx.Client, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    answer = http.put(f"/objects/{digest}", content=data)
    assert answer.status_code in (200, 201), answer.text
    return digest


def ended(http: httpx.Client, job_type: str, payload: Any) -> dict[str, Any]:
    """The task, once it has ended."""
    body = {"task_type": job_type, "parameters": payload}
    task_id = http.post("/tasks", json=body).raise_for_status().json()["task_id"]

    def look() -> Any:
        told = http.get(f"/tasks/{task_id}").json()
        return told if told["status"] in ("completed", "failed", "timed_out") else None

    found: dict[str, Any] = until("the task has ended", look, 120)
    return found


def run_script(attacked: Attacked, *command: str, **more: Any) -> dict[str, Any]:
    with attacked.http("submit") as http:
        task = ended(http, "run_script", {"command": list(command), **more})
    assert task["status"] == "completed", task
    result: dict[str, Any] = task["result"]
    return result


@pytest.fixture(scope="module")
def artifact(attacked: Attacked) -> str:
    """The digest of an archive with code in it that a script left behind."""
    write = (
        "import base64, os, sys; open(os.environ['CORRAL_ARTIFACTS'] + '/x.tar.gz', "
        "'wb').write(base64.b64decode(sys.argv[1]))"
    )
    box = archive(evil__py="import corral\n@corral.task\ndef f():\n    return 1\n")
    text = base64.b64encode(box).decode()
    result = run_script(attacked, "python3", "-c", write, text)
    digest: str = result["artifacts"][0]["digest"]
    assert digest == hashlib.sha256(box).hexdigest()
    return digest


@pytest.mark.parametrize("kind", ["function", "run_script"])
def test_c1_an_artifact_is_not_run(
    attacked: Attacked, artifact: str, kind: str
) -> None:
    payloads: dict[str, Any] = {
        "function": {"archive": artifact, "module": "evil", "function": "f"},
        "run_script": {
            "command": ["true"],
            "environment": {"archive": {"digest": artifact}},
        },
    }
    with attacked.http("submit") as http:
        body = {"task_type": kind, "parameters": payloads[kind]}
        answer = http.post("/tasks", json=body)
    assert answer.status_code == 422
    assert "not sent to be run" in answer.json()["error"]["message"]


def test_c1_a_worker_is_not_given_an_artifact_as_code(
    attacked: Attacked, artifact: str
) -> None:
    with attacked.http("admin") as http:
        refused = http.get(f"/objects/{artifact}", params={"as": "code"})
        assert refused.status_code == 409
        assert http.head(f"/objects/{artifact}", params={"as": "code"}).is_error
        assert http.get(f"/objects/{artifact}").is_success


@pytest.fixture(scope="module")
def places(attacked: Attacked) -> Iterator[list[tuple[str, int]]]:
    """Where the machine of the manager would answer; the last one may be reached."""
    with socket.socket() as bait:
        bait.bind(("0.0.0.0", 0))
        bait.listen(16)
        port = bait.getsockname()[1]
        here = [
            each.address
            for found in psutil.net_if_addrs().values()
            for each in found
            if each.family is socket.AF_INET
        ]
        for host in here:
            socket.create_connection((host, port), 5).close()
        manager = (GATEWAY, attacked.cluster.port)
        yield [*((host, port) for host in (*here, GATEWAY)), manager]


def _is_confined(found: dict[str, Any], places: list[tuple[str, int]]) -> None:
    assert found["reached"] == ([list(places[-1])] if network.is_there() else [])
    assert found["uid"] != 0
    assert (found["key"], found["home"]) == ("FileNotFoundError", ["agents"])
    assert found["mine"] <= 4
    assert found["agent"] == 0
    assert found["unshare"]
    assert found["keyctl"]
    assert found["secrets"] == []


def test_c1_a_function_of_a_user_sees_nothing_of_the_manager(
    attacked: Attacked, places: list[tuple[str, int]]
) -> None:
    code = f"import corral\n{LOOK}\nlook = corral.task(look)\n"
    with attacked.http("submit") as http:
        digest = sent(http, archive(spy__py=code))
        home = str(attacked.cluster.home)
        call = {"module": "spy", "function": "look", "args": [home, places]}
        task = ended(http, "function", {"archive": digest, **call})
    assert task["status"] == "completed", task
    _is_confined(task["result"], places)


def test_h7_a_script_sees_nothing_of_the_manager(
    attacked: Attacked, places: list[tuple[str, int]]
) -> None:
    told = "look(sys.argv[1], json.loads(sys.argv[2]))"
    look = f"{LOOK}\nimport json, sys\nprint(json.dumps({told}))"
    home = str(attacked.cluster.home)
    result = run_script(attacked, "python3", "-c", look, home, json.dumps(places))
    kind = "own" if network.is_there() else "none"
    assert (result["isolation"], result["network"]) == ("sandbox", kind)
    _is_confined(json.loads(result["stdout"]), places)


def test_h7_the_network_of_the_node_is_not_for_the_asking(attacked: Attacked) -> None:
    with attacked.http("submit") as http:
        script = {"command": ["true"], "network": "host"}
        task = ended(http, "run_script", script)
    assert task["status"] == "failed"
    assert "CORRAL_HOST_NETWORK=1" in task["error"]["message"]


# A project that is its own build backend: what it finds becomes part of the wheel.
PROJECT = """
[project]
name = "spy"
version = "1"
requires-python = ">=3.11"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import glob, zipfile

def build_wheel(folder, config=None, metadata=None):
    found = look(HOME, PLACES)
    found["variables"] = [k + "=" + v for k, v in os.environ.items()]
    found["caches"] = glob.glob(HOME + "/**/uv/*/content/*", recursive=True)
    name = "spy-1-py3-none-any.whl"
    facts = {
        "METADATA": "Metadata-Version: 2.1\\nName: spy\\nVersion: 1\\n",
        "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("found.py", f"FOUND = {found!r}")
        for file, text in facts.items():
            wheel.writestr(f"spy-1.dist-info/{file}", text)
    return name
"""


def test_c2_a_build_sees_nothing_of_the_manager_nor_of_others(
    attacked: Attacked, places: list[tuple[str, int]]
) -> None:
    home = str(attacked.cluster.home)
    backend = f"{LOOK}\nHOME, PLACES = {home!r}, {places!r}\n{BACKEND}"
    with attacked.http("submit") as http:
        data = archive(pyproject__toml=PROJECT, backend__py=backend)
        digest = sent(http, data)
    show = "import found, json; print(json.dumps(found.FOUND))"
    code = {"archive": {"digest": digest}}
    result = run_script(attacked, "python", "-c", show, environment=code)
    found = json.loads(result["stdout"])
    _is_confined(found, places)
    assert found["caches"] == []
    # The cluster was started with these, and uv itself is given them.
    assert not [text for text in found["variables"] if CANARY in text]
