"""Names and paths of the model hub: its cache on disk, its HTTP addresses. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

MAIN = "main"
_SAFE = ".safetensors"
# The same weights once more, for other libraries.
_OTHERS = (".bin", ".h5", ".msgpack", ".ot", ".tflite", ".pt", ".pth", ".gguf", ".onnx")


def cache_folder(repo: str) -> str:
    """The folder of a repository in the hub's cache."""
    return "models--" + repo.replace("/", "--")


def info_path(repo: str, revision: str) -> str:
    return f"/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"


def file_path(repo: str, revision: str, name: str) -> str:
    return f"/{repo}/resolve/{quote(revision, safe='')}/{quote(name)}"


def chosen(names: Iterable[str]) -> list[str]:
    """The files of a repository that make up the model, without hidden ones.

    Of several formats of the same weights only safetensors, where that is one.
    """
    shown = [n for n in names if not any(p.startswith(".") for p in n.split("/"))]
    if not any(name.endswith(_SAFE) for name in shown):
        return sorted(shown)
    return sorted(name for name in shown if not name.endswith(_OTHERS))
