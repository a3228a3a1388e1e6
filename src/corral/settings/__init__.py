"""The settings: declared by topic beside this file, read once, frozen afterwards.

The only reader of the environment, of `.env` and of `corral.toml`. Nothing is read at
import; `load` does it, nearest first: flags, environment, `.env`, `corral.toml`,
defaults. What each setting is for stands in docs/settings.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from corral.errors import SettingsError
from corral.settings import derived as made
from corral.settings import sources as alias
from corral.settings.access import AccessSettings
from corral.settings.alerts import AlertSettings
from corral.settings.models import ModelSettings
from corral.settings.nodes import NodeSettings
from corral.settings.retention import RetentionSettings
from corral.settings.scripts import ScriptSettings
from corral.settings.sources import Origin
from corral.settings.stores import StoreSettings
from corral.settings.tasks import TaskSettings

KEY_LENGTH, KEY_VARIETY = 20, 8
_TLS = ("ssl_cert_path", "ssl_key_path")
# Each pair in this order, or leases would end before they can be renewed.
_RISING = (
    ("beat_s", "suspect_after_s"),
    ("suspect_after_s", "lost_after_s"),
    ("no_overlap_kill_s", "no_overlap_requeue_s"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as `corral config` shows it; `value` has nothing secret in it."""

    name: str
    variable: str
    value: str | int | float | bool | None
    origin: str


def is_loopback(host: str) -> bool:
    """Does listening on `host` reach this machine only?"""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback


class Settings(
    RetentionSettings,
    AlertSettings,
    NodeSettings,
    ModelSettings,
    ScriptSettings,
    TaskSettings,
    StoreSettings,
    AccessSettings,
):
    """Every setting, with its final value; made by `load`. One module a topic.

    They are read from the last base to the first: values are made of earlier ones.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    # Facts about the reading, not settings: see `origin` and `unknown`.
    origins: dict[str, Origin] = Field(default_factory=dict, repr=False)
    strangers: dict[str, str] = Field(default_factory=dict, repr=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_unused: PydanticBaseSettingsSource,
        **_also_unused: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Our layers instead of the library's: those know no order of names."""
        assert isinstance(init_settings, InitSettingsSource)
        return alias.layers(settings_cls, init_settings.init_kwargs)

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_culprit(
        cls, data: Any, handler: ModelWrapValidatorHandler[Settings]
    ) -> Settings:
        try:
            return handler(data)
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            field = cls.model_fields[name]
            allowed, secret = alias.allowed_of(field), alias.is_secret(field)
            origin: Origin = data["origins"][name]
            raise alias.refusal(origin, data[name], allowed, secret) from None

    @field_validator("database_url", "redis_url")
    @classmethod
    def _add_password(
        cls, url: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        """A URL without a password takes the one that was given apart from it."""
        name = str(info.field_name).replace("_url", "_password")
        password = info.data.get(name)
        parts = urlsplit(url.get_secret_value()) if url else None
        if parts is None or password is None or parts.password or not parts.hostname:
            return url
        place = parts.netloc.rpartition("@")[2]
        login = made.login(unquote(parts.username or ""), password)
        return SecretStr(parts._replace(netloc=login + place).geturl())

    @model_validator(mode="after")
    def _check_together(self) -> Settings:
        for low, high in _RISING:
            if getattr(self, low) >= getattr(self, high):
                name, other = (high, low) if high in self.origins else (low, high)
                word = "more than" if name == high else "less than"
                limit = f"{self.variable(other)}={getattr(self, other):.12g}"
                raise self._refusal(name, f"{word} {limit}")
        for name, other in (_TLS, _TLS[::-1]):
            if getattr(self, name) and not getattr(self, other):
                raise self._refusal(name, f"given together with {self.variable(other)}")
        if self.insecure and not is_loopback(self.host):
            raise self._refusal(
                "host", "127.0.0.1 when keys are switched off (insecure)"
            )
        return self

    def origin(self, name: str) -> str:
        """`default`, `corral.toml`, `.env`, `environment REDIS_URL` or `flag`.

        For a value made of others, where those came from.
        """
        made_of = (name,) if name in self.origins else made.MADE_OF.get(name, ())
        found = dict.fromkeys(
            str(self.origins[p]) for p in made_of if p in self.origins
        )
        return ", ".join(found) or alias.DEFAULT

    def variable(self, name: str) -> str:
        """The name the value was given under, else the one it could be given under."""
        if name in self.origins:
            return self.origins[name].variable
        return alias.variables(name, type(self).model_fields[name])[0]

    def rows(self) -> list[Row]:
        return [
            Row(n, self.variable(n), alias.shown(getattr(self, n)), self.origin(n))
            for n in alias.declared(type(self))
        ]

    @property
    def unknown(self) -> tuple[str, ...]:
        """A warning for each CORRAL_* variable or key that is not a setting."""
        return tuple(self.strangers.values())

    @property
    def admin_key_path(self) -> Path:
        """Where the first start writes the admin key, and clients look for one."""
        return self.home / "admin.key"

    def require_loopback_or_tls(self) -> None:
        """Raises SettingsError when listening on `host` would expose plain text."""
        for name in _TLS:
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise self._refusal(name, "a readable file")
        if self.ssl_cert_path or self.allow_plaintext or is_loopback(self.host):
            return
        raise self._refusal(
            "host",
            "a loopback address such as 127.0.0.1, unless a TLS certificate is given"
            " (CORRAL_SSL_CERT_PATH) or plain text allowed (CORRAL_ALLOW_PLAINTEXT)",
        )

    def require_strong_key(self) -> None:
        """Raises SettingsError when the key to accept could be guessed.

        Asked of managers alone: others may have a variable API_KEY for something else.
        """
        if self.bootstrap_api_key is None:
            return
        # What a key of our own form begins with is no secret.
        secret = self.bootstrap_api_key.get_secret_value()
        secret = re.sub(r"corral_[^_]+_", "", secret, count=1)
        if len(secret) < KEY_LENGTH or len(set(secret)) < KEY_VARIETY:
            raise self._refusal(
                "bootstrap_api_key",
                f"at least {KEY_LENGTH} characters, {KEY_VARIETY} of them different, "
                'since it opens everything: python3 -c "import secrets; '
                'print(secrets.token_urlsafe(32))" makes one',
            )

    def require_encrypted_database(self) -> None:
        """Raises SettingsError when tasks and keys would travel in plain text.

        The driver's own default takes TLS where it is offered, which whoever stands
        in between decides.
        """
        url = self.database_url.get_secret_value() if self.database_url else ""
        if self.database_plaintext or not made.is_plain_beyond(url, is_loopback):
            return
        name = "database_url" if "database_url" in self.origins else "database_host"
        raise self._refusal(
            name,
            "on this machine, or encrypted: CORRAL_DATABASE_URL with"
            " ?sslmode=verify-full, unless plain text is allowed"
            " (CORRAL_DATABASE_PLAINTEXT)",
        )

    def _refusal(self, name: str, allowed: str) -> SettingsError:
        origin = self.origins.get(name) or Origin(alias.DEFAULT, self.variable(name))
        secret = alias.is_secret(type(self).model_fields[name])
        return alias.refusal(origin, getattr(self, name), allowed, secret)


def load(**flags: Any) -> Settings:
    """Read every source once; a flag that is None counts as not given.

    Raises:
        SettingsError: One line naming the variable, its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    if strange := given.keys() - alias.declared(Settings).keys():
        raise TypeError(f"no such setting: {', '.join(sorted(strange))}")
    return Settings(**given)


def secret_variables() -> frozenset[str]:
    """Every variable that may hold a secret: what user code must not inherit."""
    return _variables(alias.secrets(Settings))


def plain_variables() -> frozenset[str]:
    """Every other variable that a setting is read from, by whatever name."""
    return _variables(alias.declared(Settings)) - secret_variables()


def _variables(names: Iterable[str]) -> frozenset[str]:
    return frozenset(
        variable
        for name in names
        for variable in alias.variables(name, Settings.model_fields[name])
    )
