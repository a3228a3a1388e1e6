"""Where the manager is and which key to show it: arguments first, then settings.

Sends nothing. A key found in the data folder is shown only to the manager of this
machine, or to the one the settings name: never to an address somebody typed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from corral.errors import SettingsError
from corral.trust import is_this_machine

STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    api_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    @property
    def is_local(self) -> bool:
        return is_this_machine(self.url)


def find_target(
    url: str | None = None,
    api_key: str | None = None,
    home: str | Path | None = None,
) -> Target:
    """The manager to talk to.

    Args:
        url: its address; without one, the `manager_url` setting.
        api_key: the key to show; "" shows none. Without one: the `api_key` setting
            (CORRAL_API_KEY), then the file `admin.key` in the data folder.
        home: the data folder; without one, the `home` setting.

    Raises:
        SettingsError: when the address is not http:// or https://, the key is not
            one, or a setting has a value that is not allowed.
    """
    if url is not None and api_key is not None:
        return Target(_check_url(url), _check_key(api_key))
    # Costs a tenth of a second, so only callers who need it pay.
    from corral.settings import load

    settings = load(manager_url=url, home=home)
    ca_file = str(settings.ssl_cert_path) if settings.ssl_cert_path else None
    if settings.origin("manager_url") == "default":
        told = _running_here(settings.home)
        url, ca_file = told.get("url") or url, told.get("certificate") or ca_file
    address = _check_url(url or str(settings.manager_url))
    if api_key is None and settings.api_key is not None:
        api_key = settings.api_key.get_secret_value()
    if api_key is None and (url is None or home or is_this_machine(address)):
        api_key = _read_key(settings.admin_key_path)
    return Target(address, _check_key(api_key), ca_file)


def _running_here(home: Path) -> dict[str, str | None]:
    """What `corral up` on this folder says of itself: its address and certificate."""
    try:
        told = json.loads((home / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _read_key(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _check_key(key: str | None) -> str | None:
    if key and not (key.isascii() and key.isprintable()):
        raise SettingsError("the key is not printable ASCII (CORRAL_API_KEY)")
    return key


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_fine = False
    if not is_fine:
        raise SettingsError(
            f"the manager's address {url!r} is not an http:// or https:// URL "
            "(CORRAL_MANAGER_URL or --url)"
        )
    return url.rstrip("/")
