"""An engine and two images for tests: what the machine has, packed; nothing is pulled.

The engine is whatever `find` finds; Podman gets a storage of its own.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from docker import APIClient

from corral.worker.container.engine import ContainerEngine, find
from corral.worker.container.job import ContainerSettings

SHELL = "localhost/corral-test-shell:1"
PYTHON = "localhost/corral-test-python:1"
# What works as root without systemd, whichever cgroups the machine has.
CONTAINERS_CONF = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
log_driver = "k8s-file"
"""
STORAGE_CONF = """
[storage]
driver = "vfs"
graphroot = "{home}/graph"
runroot = "{home}/run"
"""
# Parts of the standard library that no runner needs.
_LEFT_OUT = {
    "__pycache__",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tkinter",
}


@pytest.fixture(scope="session")
def podman_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Has every Podman that is started from here work in a folder of this session."""
    home = tmp_path_factory.mktemp("podman")
    (home / "containers.conf").write_text(CONTAINERS_CONF)
    (home / "storage.conf").write_text(STORAGE_CONF.format(home=home))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(home / "containers.conf"))
        patch.setenv("CONTAINERS_STORAGE_CONF", str(home / "storage.conf"))
        yield home


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ContainerSettings:
    """One folder is allowed, and one for reading."""
    allowed = tmp_path_factory.mktemp("allowed")
    reading = tmp_path_factory.mktemp("reading")
    return ContainerSettings(
        allowed_volumes=(str(allowed), f"{reading}:ro"), may_pull=False
    )


@pytest.fixture(scope="session")
def engine(
    podman_files: Path, settings: ContainerSettings
) -> Iterator[ContainerEngine]:
    found = find(settings)
    if found is None:
        pytest.skip("no Docker and no Podman here: make system")
    api: Any = APIClient(base_url=found.host, version="auto")
    _give(api, SHELL, shell_root())
    yield found
    for image in (SHELL, PYTHON):
        if api.images(image):
            api.remove_image(image, force=True)
    api.close()
    found.close()


@pytest.fixture(scope="session")
def python_image(engine: ContainerEngine) -> str:
    api: Any = APIClient(base_url=engine.host, version="auto")
    _give(api, PYTHON, python_root())
    api.close()
    return PYTHON


def _give(api: Any, image: str, root: bytes) -> None:
    # Podman takes a tag nowhere else.
    api.import_image_from_data(root, repository=image)


def shell_root() -> bytes:
    """Busybox and a name for each of its programs."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox here: make system")
    listed = subprocess.run([busybox, "--list"], capture_output=True, check=True)
    with _Root() as root:
        root.tar.add(os.path.realpath(busybox), "bin/busybox")
        for name in set(listed.stdout.decode().split()) - {"busybox"}:
            root.link(f"bin/{name}", "busybox")
    return root.bytes


def python_root() -> bytes:
    """The Python of these tests, as `python` alone, without any package."""
    program = os.path.realpath(sys.executable)
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted((library / "lib-dynload").glob("*.so"))
    # A whole C library, as in any real image: more of it than Python itself asks for.
    modules += Path(msgspec.__file__).parent.glob("*.so")
    with _Root() as root:
        root.tar.add(program, "usr/local/bin/python")
        root.tar.add(library, f"usr/local/lib/{library.name}", filter=_needed)
        for needed in _libraries([Path(program), *modules]):
            root.tar.add(os.path.realpath(needed), needed.lstrip("/"))
    return root.bytes


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(Path(entry.name).parts)
    is_extra = any(part.startswith("config-") for part in parts)
    return None if is_extra or parts & _LEFT_OUT else entry


def _libraries(files: list[Path]) -> list[str]:
    listed = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=False
    )
    return sorted(set(re.findall(r"(/\S+\.so[\w.]*) \(0x", listed.stdout)))


class _Root:
    """A root folder in the making, as a tar."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115

    def __enter__(self) -> _Root:
        for folder, mode in (("etc", 0o755), ("tmp", 0o1777), ("proc", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            self.tar.addfile(entry)
        return self

    def link(self, name: str, target: str) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self.tar.addfile(entry)

    def __exit__(self, *_: object) -> None:
        self.tar.close()

    @property
    def bytes(self) -> bytes:
        return self._buffer.getvalue()
