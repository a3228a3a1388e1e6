"""`corral chat MODEL`: a conversation with a model, in a terminal or line by line."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.models import answer, sampling
from corral.cli.options.arguments import ModelName, takes
from corral.cli.options.connect import connect
from corral.cli.terminal import errors, output
from corral.errors import BadRequest, CorralError, TaskFailed

if TYPE_CHECKING:
    from corral.client import Client

_TOKENS = 1024
_HELP = """\
/help         this
/reset        forget what was said
/save FILE    write the conversation to a file, as JSON
/exit         leave, like Ctrl-D
Ctrl-C stops an answer."""


@takes(how=sampling.options)
def chat(
    ctx: typer.Context,
    model: ModelName,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How it is to answer.")
    ] = None,
    *,
    how: dict[str, Any],
) -> None:
    """Talk with a model; it knows what was said before.

    Without a terminal each line of stdin is a turn. /help lists what else can be said.
    """
    is_live = sys.stdin.isatty()
    with connect(ctx) as client:
        answer.check(client, model)
        talk = Conversation(client, model, system, {"max_tokens": _TOKENS, **how})
        if is_live:
            output.hint(f"{model} listens. /help says what else can be said.")
        for line in _typed() if is_live else _piped():
            if line.strip() in ("/exit", "/quit"):
                return
            try:
                talk.hear(line)
            except KeyboardInterrupt:
                if not is_live:
                    raise
                answer.write("\n")
            except (CorralError, OSError) as error:
                if not is_live:
                    raise
                errors.report(error)


class Conversation:
    """What was said so far, and what is to be done with a line."""

    def __init__(
        self, client: Client, model: str, system: str | None, how: dict[str, Any]
    ) -> None:
        self._client = client
        self._model = model
        self._how = how
        first = [] if system is None else [{"role": "system", "content": system}]
        self._first = first
        self._said = list(first)

    def hear(self, line: str) -> None:
        """Do what a line asks for: a command, or an answer.

        Raises:
            BadRequest, OSError: the command is unknown or cannot be done.
            TaskFailed: there is no answer; it is as if nothing had been said.
        """
        if line.startswith("/"):
            self._obey(*line[1:].strip().partition(" ")[::2])
        elif line.strip():
            self._reply(line)

    def _obey(self, command: str, what: str) -> None:
        if command == "help":
            output.hint(_HELP)
        elif command == "reset":
            self._said = list(self._first)
        elif command == "save":
            self._save(what.strip())
        else:
            raise BadRequest(f"there is no /{command}; /help lists what there is")

    def _save(self, name: str) -> None:
        if not name:
            raise BadRequest("/save needs the name of a file: /save talk.json")
        told = {"model": self._model, "messages": self._said}
        text = json.dumps(told, indent=2, ensure_ascii=False)
        try:
            Path(name).expanduser().write_text(f"{text}\n", encoding="utf-8")
        except (ValueError, RuntimeError) as error:
            raise BadRequest(f"cannot write {name!r}: {error}") from None
        output.hint(f"saved in {name}")

    def _reply(self, line: str) -> None:
        asked = [*self._said, {"role": "user", "content": line}]
        told = answer.ShownText(answer.write)
        payload = {"messages": asked, **self._how}
        try:
            done = answer.ask(self._client, self._model, payload, told)
        except KeyboardInterrupt:
            # What was read stands; a question without an answer does not.
            if told.text:
                self._said = [*asked, _by_model(told.text)]
            raise
        except TaskFailed:
            if told.text:
                answer.end_line(told.text)
            raise
        answer.end_line(done.text)
        answer.warn_of_length(done)
        self._said = [*asked, _by_model(done.text)]


def _by_model(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _typed() -> Iterator[str]:
    """Lines from a terminal, with a prompt, until Ctrl-D."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() its editing and history
    while True:
        try:
            line = input(">>> ")
        except EOFError:
            answer.write("\n")
            return
        except KeyboardInterrupt:
            output.hint("\nCtrl-D or /exit leaves.")
            continue
        yield line


def _piped() -> Iterator[str]:
    try:
        for line in sys.stdin:
            yield line.removesuffix("\n")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"it is not text: {error}", param_hint="stdin"
        ) from None
