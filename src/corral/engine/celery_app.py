"""Makes the Celery application: orders only, no results, no retries, no late acks.

The guarantees are the manager's; this transport may lose or repeat anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from celery import Celery

ORDER_TASK = "corral.order"
BELL = "corral_bell"
URL_FILE = "engine.url"
DEFAULT_URL = "redis://127.0.0.1:6379/0"


def make_app(redis_url: str, *, node_id: str = "", send_events: bool = False) -> Celery:
    """An application on `redis_url`; a node's workers keep their own unacked keys.

    A node's user may run no script but kombu's lock: with an end, the queue by which
    Celery's remote control reaches a worker would take two more.
    """
    app = Celery("corral", broker=redis_url, set_as_current=False)
    app.conf.update(
        imports=("corral.worker.supervisor.engine_plugin",),
        task_serializer="json",
        result_serializer="json",
        event_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=False,
        task_default_queue="corral",
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=send_events,
        task_send_sent_event=False,
        worker_enable_remote_control=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        broker_transport_options=transport_options(node_id),
        enable_utc=True,
    )
    if node_id:
        app.conf.control_queue_expires = None
    return app


def transport_options(node_id: str) -> dict[str, Any]:
    # A read that outlasts every timeout on a half-open connection is how workers go
    # deaf, so all sockets have limits; kombu drops an overdue BRPOP by itself.
    return {
        "socket_timeout": 15.0,
        "socket_connect_timeout": 5.0,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "unacked_key": f"unacked.{node_id}",
        "unacked_index_key": f"unacked_index.{node_id}",
        "unacked_mutex_key": f"unacked_mutex.{node_id}",
        "visibility_timeout": 86_400 * 365,
    }


def local_app() -> Celery:
    """The application of the cluster this machine's settings point at."""
    from corral import settings

    config = settings.load()
    if config.redis_url is not None:
        url = config.redis_url.get_secret_value()
    else:
        url = _read(Path(config.home) / URL_FILE) or DEFAULT_URL
    return make_app(url, send_events=config.worker_send_task_events)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
