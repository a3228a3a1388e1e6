"""What was asked of `corral up`, as settings and as a command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from corral.process.keep_alive import python_command

if TYPE_CHECKING:
    from corral.settings import Settings

_OWN_FIELDS = (
    "workers",
    "drain",
    "verbose",
    "manager_argv",
    "agent_argv",
    "ingress_argv",
)
_CORRAL = python_command("corral")


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line; None where the settings decide."""

    home: Path | None = None
    host: str | None = None
    port: int | None = None
    ssl_cert_path: Path | None = None
    ssl_key_path: Path | None = None
    allow_plaintext: bool | None = None
    insecure: bool | None = None
    celery_ingress: bool | None = None
    log_format: str | None = None
    workers: tuple[str, ...] = ()
    drain: bool = False
    verbose: bool = False
    manager_argv: tuple[str, ...] = (*_CORRAL, "manager", "serve")
    agent_argv: tuple[str, ...] = (*_CORRAL, "agent", "serve")
    ingress_argv: tuple[str, ...] = (*_CORRAL, "ingress")

    def flags(self) -> dict[str, object]:
        """The settings among them that were given."""
        names = [f.name for f in fields(self) if f.name not in _OWN_FIELDS]
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}

    def load(self) -> Settings:
        from corral import settings

        return settings.load(**self.flags())

    def arguments(self) -> list[str]:
        """The command line that asks for the same, in the foreground."""
        given: list[str] = []
        for name in ("home", "host", "port", "log_format"):
            if (value := getattr(self, name)) is not None:
                given += [f"--{name.replace('_', '-')}", str(value)]
        if self.ssl_cert_path and self.ssl_key_path:
            given += ["--tls", str(self.ssl_cert_path), str(self.ssl_key_path)]
        for name in (
            "allow_plaintext",
            "insecure",
            "celery_ingress",
            "drain",
            "verbose",
        ):
            if getattr(self, name):
                given.append(f"--{name.replace('_', '-')}")
        given += [word for text in self.workers for word in ("--worker", text)]
        return given if self.workers else [*given, "--no-agent"]
