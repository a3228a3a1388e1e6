"""The programs that are known: how each is started, and where its API differs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corral.worker.inference.errors import Unusable
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load.resolve import ModelRef

FIELDS = ("folder", "file", "name", "port", "gpus")
_FIELD = re.compile(r"\{([a-z_]+)\}")
RESUMES = ("continue_final_message", "prefill", "again")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where servers differ: the name of a field, what is sent though nobody asked, and
    how a chat goes on from what was said.

    `resume` is continue_final_message (said in the request), prefill (the last message
    is the assistant's) or again (from the start).
    """

    repetition: str = "repetition_penalty"
    sends_top_k: bool = False
    sends_min_p: bool = False
    truncates: bool = False
    resume: str = "again"


@dataclass(frozen=True, slots=True)
class Program:
    """`command` has fields in braces."""

    command: tuple[str, ...]
    dialect: Dialect = Dialect()
    install: str = ""


OWN = Program((), Dialect())
PROGRAMS: Mapping[str, Program] = {
    "vllm": Program(
        (
            "vllm", "serve", "{folder}", "--host", "127.0.0.1", "--port", "{port}",
            "--served-model-name", "{name}",
        ),
        Dialect(sends_top_k=True, truncates=True, resume="continue_final_message"),
        "pip install vllm",
    ),
    "llama.cpp": Program(
        (
            "llama-server", "-m", "{file}", "--host", "127.0.0.1", "--port", "{port}",
            "--alias", "{name}",
        ),
        Dialect(
            "repeat_penalty",
            sends_top_k=True,
            sends_min_p=True,
            # With the assistant's message alone it says that once more.
            resume="continue_final_message",
        ),
        "put llama-server of llama.cpp on the PATH",
    ),
}  # fmt: skip


def program_named(name: str) -> Program:
    """A program that is known.

    Raises:
        Unusable: it is not.
    """
    if name not in PROGRAMS:
        known = ", ".join(PROGRAMS)
        text = f"there is no server {name!r}; known: {known}; else give a command"
        raise Unusable(text, "unsupported_model")
    return PROGRAMS[name]


def options(server: str | None, ref: ModelRef, gpus: int) -> list[str]:
    """What a known program is told beyond its command, by the model and the cards."""
    if server == "vllm":
        more = ["--tensor-parallel-size", str(gpus)] if gpus > 1 else []
        more += ["--dtype", ref.dtype] if ref.dtype else []
        return more + (["--trust-remote-code"] if ref.trust_remote_code else [])
    if server == "llama.cpp":
        more = ["--n-gpu-layers", "999"] if gpus else []
        return more + (["--embeddings"] if ref.kind is ModelKind.EMBED else [])
    return []


def fields_of(command: Sequence[str]) -> set[str]:
    """The fields in braces.

    Raises:
        Unusable: one of them is not known.
    """
    found = {name for part in command for name in _FIELD.findall(part)}
    if unknown := sorted(found - set(FIELDS)):
        known = ", ".join(f"{{{field}}}" for field in FIELDS)
        text = f"the command has the unknown field {{{unknown[0]}}}; known: {known}"
        raise Unusable(text, "unsupported_model")
    return found


def fill(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [_FIELD.sub(lambda found: values[found[1]], part) for part in command]


def check_program(program: str, path: str | None, hint: str) -> None:
    """Is there such a program to start?

    Raises:
        Unusable: there is not.
    """
    if shutil.which(program, path=path) is None:
        text = f"there is no program {program} on this node"
        raise Unusable(f"{text}: {hint}" if hint else text, "missing_library")
