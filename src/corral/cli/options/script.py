"""Scripts on the command line: what `corral run -- COMMAND` sends, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.terminal import progress

if TYPE_CHECKING:
    from corral.client import Client, TaskOptions

# As container engines have it: what failed is not the script itself.
OURS = 125

Git = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The code is in this repository.", show_default=False
    ),
]
Branch = Annotated[str | None, typer.Option(help="With --git: the branch.")]
Commit = Annotated[str | None, typer.Option(help="With --git: the commit.")]
Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The code is this folder: it is sent."),
]
Image = Annotated[
    str | None, typer.Option(metavar="IMAGE", help="It runs in this container.")
]
WorkingDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where in the code the command runs.")
]
Project = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where in the code pyproject.toml is.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="A variable; may be repeated."),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="[VAR=]NAME", help="A secret, as a variable; repeatable."
    ),
]
Volumes = Annotated[
    list[str] | None,
    typer.Option("--volume", metavar="HOST:PATH", help="With --image; repeatable."),
]
NoNetwork = Annotated[
    bool, typer.Option("--no-network", help="Cut the script off from the network.")
]
HostNetwork = Annotated[
    bool,
    typer.Option("--host-network", help="Give it its node's network, where allowed."),
]
Grace = Annotated[
    float | None,
    typer.Option("--grace", metavar="S", help="Between SIGTERM and SIGKILL.", min=0),
]


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """Where code comes from, as the command line says it."""

    git: str | None = None
    branch: str | None = None
    commit: str | None = None
    folder: Path | None = None
    image: str | None = None
    working_dir: str | None = None
    project: str | None = None

    @property
    def is_given(self) -> bool:
        return any((self.git, self.folder, self.image))

    def environment(
        self, client: Client, volumes: list[str] | None = None
    ) -> dict[str, Any] | None:
        """The form that travels; a folder is sent now."""
        if sum(given is not None for given in (self.git, self.folder, self.image)) > 1:
            raise typer.BadParameter("give one of --git, --dir and --image")
        places = {"working_dir": self.working_dir, "project": self.project}
        if self.git is not None:
            at = {"branch": self.branch, "commit": self.commit}
            return {"git": {"repo_url": _url(self.git), **at, **places}}
        if self.folder is not None:
            return {"archive": {"digest": _send(client, self.folder), **places}}
        if self.image is not None:
            mounts = dict(_pair(text, ":", "--volume") for text in volumes or ())
            named = {"image": self.image, "working_dir": self.working_dir}
            return {"docker": {**named, "volumes": mounts}}
        return None


def source(
    git: Git = None,
    branch: Branch = None,
    commit: Commit = None,
    folder: Folder = None,
    image: Image = None,
    working_dir: WorkingDir = None,
    project: Project = None,
) -> ScriptSource:
    """The options that say where code comes from."""
    return ScriptSource(git, branch, commit, folder, image, working_dir, project)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a script is given and allowed."""

    told: dict[str, Any]
    volumes: list[str] | None = None


def rules(
    variables: Variables = None,
    secrets: Secrets = None,
    volumes: Volumes = None,
    no_network: NoNetwork = False,
    host_network: HostNetwork = False,
    grace: Grace = None,
) -> Rules:
    """The options of a script besides its code and command."""
    told: dict[str, Any] = {}
    if variables:
        told["variables"] = dict(_pair(text, "=", "--env") for text in variables)
    if secrets:
        told["secrets"] = dict(_secret(text) for text in secrets)
    if no_network and host_network:
        raise typer.BadParameter(
            "with --no-network it has none", param_hint="--host-network"
        )
    if host_network:
        told["network"] = "host"
    if no_network:
        told["network"] = False
    if grace is not None:
        told["grace_s"] = grace
    return Rules(told, volumes)


def payload(
    client: Client,
    command: list[str],
    code: ScriptSource,
    given: Rules,
    options: TaskOptions,
) -> dict[str, Any]:
    """The whole script, its folder sent; it may use as much as it asks for."""
    where = code.environment(client, given.volumes)
    told: dict[str, Any] = {} if where is None else {"environment": where}
    taken = options.get("resources") or {}
    limits = {key: taken[key] for key in ("memory_mb", "cpus") if key in taken}
    if limits:
        told["limits"] = limits
    return {"command": command, **told, **given.told}


def _url(text: str) -> str:
    """A folder is meant as a repository on this machine's disk."""
    place = Path(text)
    return str(place.resolve()) if "://" not in text and place.is_dir() else text


def _send(client: Client, folder: Path) -> str:
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is not a folder", param_hint="--dir")
    with progress.bar(f"sending {folder}", is_bytes=True) as advance:
        return client.upload(folder, on_progress=advance)


def _secret(text: str) -> tuple[str, str]:
    """A variable and the secret it holds; one word names both alike."""
    variable, _, name = text.partition("=")
    return variable, name or variable


def _pair(text: str, middle: str, option: str) -> tuple[str, str]:
    left, found, right = text.partition(middle)
    if not left or not found:
        raise typer.BadParameter(f"{text!r} misses a {middle}", param_hint=option)
    return left, right
