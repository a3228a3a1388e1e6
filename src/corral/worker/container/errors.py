"""An engine's complaints, as one line that says what to do."""

from __future__ import annotations

from docker.errors import APIError, DockerException, ImageNotFound

from corral.errors import WorkerError

# Both engines pass on the words of the program that starts containers.
_NO_COMMAND = ("executable file not found", "no such file or directory", "not found in")
_NO_RIGHT = ("permission denied", "exec format error", "is a directory")
LONGEST = 300


def one_line(error: BaseException | str) -> str:
    """The engine's own words, on one line."""
    told = getattr(error, "explanation", None) or str(error)
    if isinstance(told, bytes):
        told = told.decode("utf-8", "replace")
    text = " ".join(str(told).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def of_image(image: str, error: DockerException | None) -> WorkerError:
    """It is not on the node, and pulling was not allowed or failed with `error`."""
    why = f": {one_line(error)}" if error else ", and this node does not pull images"
    return WorkerError(
        f"image {image!r} is not on this node{why}; check its name, or get it there "
        f"with `docker pull {image}`",
        image=image,
    )


def of_start(image: str, argv: tuple[str, ...], error: APIError) -> WorkerError:
    """The container was refused, or its command could not be started."""
    if isinstance(error, ImageNotFound):
        return of_image(image, error)
    told = one_line(error)
    command = argv[0] if argv else ""
    if any(words in told for words in _NO_COMMAND) and _is_about(command, told):
        return WorkerError(
            f"command {command!r} is not in image {image!r}", image=image, missing=True
        )
    if any(words in told for words in _NO_RIGHT) and _is_about(command, told):
        return WorkerError(
            f"command {command!r} cannot be started in image {image!r}: {told}",
            image=image,
        )
    return WorkerError(f"no container of {image!r} can be started: {told}", image=image)


def _is_about(command: str, told: str) -> bool:
    return bool(command) and f'"{command}"' in told.replace("\\", "")
