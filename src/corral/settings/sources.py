"""How a setting is written and where its value comes from.

The kinds of values, a setting's names, the layers they are looked up in, masking, and
the error line. Only this package uses this; it knows no setting by name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from ipaddress import IPv6Address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from corral.errors import SettingsError

PREFIX = "CORRAL_"
TOML = "corral.toml"
# The later one is the nearer one.
ENV_FILES = ("config/cluster-manager-db.env", ".env")
ENVIRONMENT, FLAG, DEFAULT = "environment", "flag", "default"
MASK = "********"
# Kubernetes sets these for a service called corral, redis, api...
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_SERVICE_LINK = r"CORRAL_SERVICE_(HOST|PORT).*|CORRAL_PORT_\d+_.*"
# Ours as well, but between our own processes and tests: nothing to set.
_NOT_STRANGE = re.compile(_SERVICE_LINK + r"|CORRAL_AGENT_\w+|CORRAL_STRICT")
# Between which values many a setting lies.
DAY_S = 86_400
PORT = (1, 65_535)
COUNT = (1, 1_000_000)
WAIT = (0.1, DAY_S)
KEEP = (60, 3650 * DAY_S)
LONG = (1, 3650 * DAY_S)
SIZE = (1024, 1 << 30)
SHARE = (0.01, 1)
PERCENT = (1, 100)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def _read_seconds(value: Any) -> Any:
    found = re.fullmatch(r"(\d*\.?\d+) ?(ms|s|m|h|d)", str(value).strip().lower())
    return float(found[1]) * _UNITS_S[found[2]] if found else value


def _read_devices(value: Any) -> Any:
    if isinstance(value, str):
        if value.lower() in ("all", "none"):
            return None if value.lower() == "all" else ()
        value = value.strip("[]").split(",")
    items = value if isinstance(value, (list, tuple)) else (value,)
    devices = tuple(str(item).strip(" \"'") for item in items)
    if len(set(devices)) < len(devices):
        raise ValueError("a device is listed twice")
    if not all(re.fullmatch(r"[A-Za-z0-9][\w:./-]*", item) for item in devices):
        raise ValueError("not a device")
    return devices


def _read_targets(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value
    targets = tuple(str(item).strip() for item in items if str(item).strip())
    target = re.compile(r"[A-Za-z0-9\[][\w:.\]-]*(/\d{1,3}(:\d+)?)?")
    if not all(target.fullmatch(item) for item in targets):
        raise ValueError("not a target")
    return targets


def _read_host_names(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value
    names = tuple(str(item).strip().lower() for item in items if str(item).strip())
    name = re.compile(
        r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|[0-9a-f:]*:[0-9a-f:.]+"
    )
    if not all(name.fullmatch(item) for item in names):
        raise ValueError("not a host name")
    return names


def _read_networks(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value
    texts = [str(item).strip() for item in items if str(item).strip()]
    return tuple(str(ip_network(text, strict=False)) for text in texts)


def _read_level(value: Any) -> Any:
    level = value.upper() if isinstance(value, str) else value
    return {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(level, level)


def _match(pattern: str) -> AfterValidator:
    def check(value: Any) -> Any:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if not re.fullmatch(pattern, text):
            raise ValueError("not of this kind")
        if "://" in pattern and urlsplit(text).port == 0:  # not a number: ValueError
            raise ValueError("no such port")
        return value

    return AfterValidator(check)


def _check_host(value: str) -> str:
    if ":" in value:
        return str(IPv6Address(value))
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        raise ValueError("not a host")
    return value


def _settle(value: Path) -> Path:
    return value.expanduser().absolute()


def _trim(value: str) -> str:
    return value.rstrip("/")


# The remark in each says what is allowed; error lines quote it.
Urls = Annotated[
    str, Field(pattern=r"^$|^https?://[^\s,]+(,https?://[^\s,]+)*$"), "a list of URLs"
]
SecretUrls = Annotated[
    SecretStr,
    _match(r"https?://[^\s,]+(,https?://[^\s,]+)*"),
    "a list of URLs",
]
Seconds = Annotated[float, BeforeValidator(_read_seconds)]
Place = Annotated[Path, AfterValidator(_settle), "a path"]
Name = Annotated[
    str,
    _match(r"[A-Za-z0-9][\w.-]{0,62}"),
    "1 to 63 letters, digits, dots, dashes and underscores",
]
Host = Annotated[str, AfterValidator(_check_host), "a host name or an IP address"]
HttpUrl = Annotated[
    str,
    _match(r"https?://[^/\s]+\S*"),
    AfterValidator(_trim),
    "a URL like http://host:8002",
]
Endpoint = Annotated[str, _match(r"(https?://)?[^/\s]+/?"), "like host:9000"]
ApiKey = Annotated[SecretStr, _match(r"[!-~]+"), "printable ASCII without spaces"]
PostgresUrl = Annotated[
    SecretStr,
    _match(r"postgres(ql)?(\+\w+)?://\S+"),
    "a URL like postgresql://user:password@host:5432/name",
]
RedisUrl = Annotated[
    SecretStr,
    _match(r"(rediss?|unix|redis\+socket)://\S+"),
    "a URL like redis://:password@host:6379/0",
]
Level = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    BeforeValidator(_read_level),
]
Devices = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_read_devices),
    "a list like 0,1 (each once), or all, or none",
]
Ports = Annotated[str, Field(pattern=r"^\d{1,5}[-,]\d{1,5}$"), "a range like 8092-8111"]
Paths = Annotated[
    tuple[Annotated[str, Field(pattern=r"^/[^,]*$")], ...],
    BeforeValidator(lambda v: [p for p in v.split(",") if p] if v == str(v) else v),
    "a list of absolute paths like /data,/models:ro",
]
Buckets = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[\w.-]+(/[^\s,]*)?$")], ...],
    BeforeValidator(lambda v: [b for b in v.split(",") if b] if v == str(v) else v),
    "a list of buckets like models,shared/weights",
]
Registries = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[\w.-]+(:\d+)?(/[^\s,]*)?$")], ...],
    BeforeValidator(lambda v: [r for r in v.split(",") if r] if v == str(v) else v),
    "a list like docker.io/library,registry.lan:5000",
]
Names = Annotated[
    tuple[Annotated[str, Field(pattern=r"^\w+\*?$")], ...],
    BeforeValidator(lambda v: [n for n in v.split(",") if n] if v == str(v) else v),
    "a list of names like DATA_DIR,MY_*",
]
Targets = Annotated[
    tuple[str, ...],
    BeforeValidator(_read_targets),
    "a list of hosts, addresses or networks like models.lan:9000,10.0.0.0/8",
]
HostNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_read_host_names),
    "a list of host names without ports, like corral.example.com,*.lan",
]
Networks = Annotated[
    tuple[str, ...],
    BeforeValidator(_read_networks),
    "a list of addresses or networks like 127.0.0.1,10.0.0.0/8",
]


@dataclass(frozen=True, slots=True)
class Origin:
    """The layer a value was found in, and the name it had there."""

    source: str
    variable: str

    def __str__(self) -> str:
        if self.source == ENVIRONMENT:
            return f"{ENVIRONMENT} {self.variable}"
        return self.source


def setting(
    default: Any, *aliases: str, span: tuple[float, float] | None = None
) -> Any:
    """Declare a setting: its default, other variables in their order, its bounds.

    A default that is a function makes the value of the fields before it.
    """
    extra: Any = {"aliases": list(aliases), "span": span}
    low, high = span or (None, None)
    if callable(default):
        return Field(default_factory=default, ge=low, le=high, json_schema_extra=extra)
    return Field(default, ge=low, le=high, json_schema_extra=extra)


@cache
def declared(cls: type[BaseSettings]) -> Mapping[str, FieldInfo]:
    """The fields made with `setting`, without those that only carry facts."""
    return {n: f for n, f in cls.model_fields.items() if f.json_schema_extra}


@cache
def secrets(cls: type[BaseSettings]) -> frozenset[str]:
    """The names of those that are secret: each layer asks this of every field."""
    return frozenset(n for n, f in declared(cls).items() if is_secret(f))


def extra_of(field: FieldInfo) -> dict[str, Any]:
    return cast(dict[str, Any], field.json_schema_extra or {})


def variables(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Every variable for a setting; the first one that is set counts."""
    return (PREFIX + name.upper(), *extra_of(field)["aliases"])


def is_secret(field: FieldInfo) -> bool:
    return SecretStr in _unfold(field.annotation)


def _unfold(annotation: Any) -> list[Any]:
    """The types and remarks inside unions and Annotated."""
    if get_origin(annotation) is Literal:
        return [annotation]
    inner = (*get_args(annotation), *getattr(annotation, "__metadata__", ()))
    return [annotation, *(item for arg in inner for item in _unfold(arg))]


def allowed_of(field: FieldInfo) -> str:
    """What may be written for a setting, in words."""
    parts = [*field.metadata, *_unfold(field.annotation)]
    for part in parts:
        if isinstance(part, str):
            return part
        if get_origin(part) is Literal:
            return "one of " + ", ".join(get_args(part))
    if bool in parts:
        return "true or false"
    span = extra_of(field)["span"]
    if not span:
        return "text"
    low, high = (f"{bound:.12g}" for bound in span)
    if ByteSize in parts:
        return f"a size from {low} to {high} bytes (or like 512KiB, 1MiB)"
    if any(getattr(part, "func", None) is _read_seconds for part in parts):
        return f"seconds from {low} to {high} (or like 90s, 5m, 2h, 30d)"
    kind = "a number" if float in parts else "a whole number"
    return f"{kind} from {low} to {high}"


def mask(value: str) -> str:
    """A secret as it may be shown: a URL without its password, else nothing of it."""
    if not re.match(r"[a-z][a-z0-9+.-]*://", value, re.IGNORECASE):
        return MASK
    if value.lower().startswith("http"):
        # Of one that is called as it is, anything behind the host may be a token.
        hosts = (urlsplit(url).hostname or "" for url in value.split(","))
        return ",".join(f"{host}/{MASK}" for host in hosts)
    return mask_url(value)


def mask_url(value: str) -> str:
    # Greedy up to the last @: a password may hold one that was not escaped.
    value = re.sub(r"//([^:/@]*):.*@", r"//\1:***@", value)
    return re.sub(r"((?:password|token|secret)=)[^&]*", r"\1***", value)


def shown(value: Any) -> str | int | float | bool | None:
    """A value for people and for JSON, with nothing secret in it."""
    if isinstance(value, SecretStr):
        return mask(value.get_secret_value())
    if isinstance(value, str):
        return mask_url(value) if "://" in value else value
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value) or "none"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def refusal(
    origin: Origin, value: Any, allowed: str, secret: bool = False
) -> SettingsError:
    """The one line that names the variable, its value and what is allowed."""
    text = f"{value:.12g}" if isinstance(value, float) else str(shown(value))
    if secret:
        # Only the scheme: in a broken URL nobody can tell what is the password.
        found = re.match(r"[a-z][a-z0-9+]*://", str(value), re.IGNORECASE)
        text = (found[0] if found else "") + MASK
    text = repr(text if len(text) <= 80 else text[:77] + "...")
    return SettingsError(
        f"{origin.variable}={text} ({origin.source}) is not allowed:"
        f" it must be {allowed}",
        variable=origin.variable,
        value=text,
        allowed=allowed,
    )


class Layer(PydanticBaseSettingsSource):
    """One place values come from: a mapping and the names that are looked up in it.

    Beside the values it answers `origins` and `strangers` as dicts: the library merges
    layers deeply, so both follow the same precedence as the values themselves.
    """

    def __init__(
        self, cls: type[BaseSettings], source: str, found: Mapping[str, Any]
    ) -> None:
        super().__init__(cls)
        self.source = source
        self.found = found

    def names(self, name: str, field: FieldInfo) -> tuple[str, ...]:
        return (name,) if self.source in (TOML, FLAG) else variables(name, field)

    def get_field_value(
        self, field: FieldInfo, field_name: str
    ) -> tuple[Any, str, bool]:
        """(value, the name it was found under, never to be parsed as JSON)."""
        for variable in self.names(field_name, field):
            value = self.found.get(variable)
            if _is_given(field_name, value):
                return value, variable, False
            in_file = f"{variable}_{'file' if self.source == TOML else 'FILE'}"
            is_file = field_name in secrets(self.settings_cls)
            path = self.found.get(in_file) if is_file else None
            if _is_given(field_name, path):
                return self._read_secret(in_file, str(path)), in_file, False
        return None, "", False

    def _read_secret(self, variable: str, path: str) -> str:
        try:
            secret = Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            secret = ""
        if not secret:
            origin = Origin(self.source, variable)
            raise refusal(origin, path, "a readable file that is not empty")
        return secret

    def __call__(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        for name, field in declared(self.settings_cls).items():
            value, variable, _ = self.get_field_value(field, name)
            if value is not None:
                values[name] = value.strip() if isinstance(value, str) else value
                if self.source == FLAG:
                    variable = "--" + name.replace("_", "-")
                origins[name] = Origin(self.source, variable)
        return values | {"origins": origins, "strangers": dict(self._strangers())}

    def _strangers(self) -> Iterator[tuple[str, str]]:
        """Names that look like ours and are not, with the nearest that is."""
        ours = [n for n in self.found if self.source == TOML or n.startswith(PREFIX)]
        known = self._known() if ours else set()
        for name in ours:
            if name in known or _NOT_STRANGE.fullmatch(name):
                continue
            near = get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield name, f"{name} ({self.source}) is not a setting{hint}"

    def _known(self) -> set[str]:
        """Every name that may stand here."""
        suffix = "_file" if self.source == TOML else "_FILE"
        known: set[str] = set()
        for name, field in declared(self.settings_cls).items():
            names = self.names(name, field)
            is_file = name in secrets(self.settings_cls)
            known.update(names, (n + suffix for n in names if is_file))
        return known


def _is_given(name: str, value: Any) -> bool:
    if not isinstance(value, str):
        return value is not None
    is_link = name.endswith("port") and _SERVICE_ADDRESS.match(value) is not None
    return bool(value.strip()) and not is_link


def layers(cls: type[BaseSettings], flags: Mapping[str, Any]) -> tuple[Layer, ...]:
    """All layers, the nearest first."""
    near = [Layer(cls, FLAG, flags), Layer(cls, ENVIRONMENT, os.environ)]
    near += [Layer(cls, file, _read_env(Path(file))) for file in reversed(ENV_FILES)]
    return (*near, Layer(cls, TOML, _read_toml(_find_toml(cls, near))))


def _find_toml(cls: type[BaseSettings], near: list[Layer]) -> Path:
    """`corral.toml` here, else in the home that the nearer layers name."""
    here = Path(TOML)
    if here.is_file():
        return here
    field = cls.model_fields["home"]
    homes = (layer.get_field_value(field, "home")[0] for layer in near)
    home = next((h for h in homes if h is not None), None)
    if home is None:
        home = field.get_default(call_default_factory=True, validated_data={})
    return Path(home).expanduser() / TOML


def _read_env(path: Path) -> Mapping[str, str | None]:
    try:
        return dotenv_values(path, encoding="utf-8-sig") if path.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {_reason(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            return {}
        return _flatten(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "unreadable"
    return " ".join(str(error).split())


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`[redis] url = ...` is the same as `redis_url = ...`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}_")
        else:
            flat[prefix + key] = value
    return flat
