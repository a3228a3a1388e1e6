"""Which cluster, who reaches it, and how: addresses, TLS, keys, limits of callers.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from pydantic_settings import BaseSettings

from corral.settings import derived as made
from corral.settings import sources as alias
from corral.settings.sources import Place, setting


class AccessSettings(BaseSettings):
    """What `Settings` has of the cluster and the way in."""

    # Which cluster, and where it lives
    home: Place = setting(made.user_home)
    cluster_name: alias.Name = setting("corral")

    # Where the manager is
    host: alias.Host = setting("127.0.0.1", "CLUSTER_MANAGER_HOST", "API_HOST")
    port: int = setting(8002, "CLUSTER_MANAGER_PORT", "API_PORT", span=alias.PORT)
    ssl_cert_path: Place | None = setting(None, "CORRAL_TLS_CERT", "SSL_CERT_PATH")
    ssl_key_path: Place | None = setting(None, "CORRAL_TLS_KEY", "SSL_KEY_PATH")
    manager_url: alias.HttpUrl = setting(made.manager_url, "CLUSTER_MANAGER_URL")
    allow_plaintext: bool = setting(False)
    insecure: bool = setting(False)
    allowed_hosts: alias.HostNames = setting(())
    trusted_proxies: alias.Networks = setting(())
    discovery: bool = setting(False)

    # Keys
    api_key: alias.ApiKey | None = setting(None)
    join_token: alias.ApiKey | None = setting(None)
    bootstrap_api_key: alias.ApiKey | None = setting(None, "API_KEY")
    rate_limit_per_s: float = setting(1000.0, span=(0.001, 1e6))
    rate_burst: int = setting(2000, span=alias.COUNT)
    failed_auth_per_min: int = setting(10, span=alias.COUNT)
    metrics_public: bool = setting(False)

    # Those who have shown none yet
    max_connections: int = setting(10_000, span=alias.COUNT)
    header_timeout_s: alias.Seconds = setting(20.0, span=alias.WAIT)
    body_timeout_s: alias.Seconds = setting(120.0, span=alias.WAIT)

    # Apps behind the gateway
    gateway_allow: alias.Targets = setting(())

    # Those who listen to events
    event_listeners: int = setting(1000, span=alias.COUNT)
    event_listeners_per_client: int = setting(10, span=alias.COUNT)
    event_origins: alias.Urls = setting("")
