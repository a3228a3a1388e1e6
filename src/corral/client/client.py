"""Client and AsyncClient: the list of calls, once, under two drivers."""

from __future__ import annotations

from corral.client.calls import access as access_calls
from corral.client.calls import cluster as cluster_calls
from corral.client.calls import events as event_calls
from corral.client.calls import insight as metric_calls
from corral.client.calls import models as model_calls
from corral.client.calls import nodes as node_calls
from corral.client.calls import objects as object_calls
from corral.client.calls import output as output_calls
from corral.client.calls import queues as queue_calls
from corral.client.calls import tasks as task_calls
from corral.client.calls import workers as worker_calls
from corral.client.http.endpoint import Endpoint, StreamEndpoint
from corral.client.http.transport import AsyncDriver, SyncDriver


class Calls:
    """Every call of the client; what each does is told where it is declared."""

    health = Endpoint(cluster_calls.health)
    cluster_status = Endpoint(cluster_calls.cluster_status)
    cluster_metrics = Endpoint(metric_calls.cluster_metrics)
    node_metrics = Endpoint(metric_calls.node_metrics)
    drain = Endpoint(cluster_calls.drain)
    journal = Endpoint(metric_calls.journal)
    events = Endpoint(event_calls.events)
    follow_events = StreamEndpoint(event_calls.follow_events)
    live_events = StreamEndpoint(event_calls.live_events)
    alerts = Endpoint(event_calls.alerts)
    acknowledge_alert = Endpoint(event_calls.acknowledge_alert)
    cluster_health = Endpoint(event_calls.cluster_health)
    join_token = Endpoint(access_calls.join_token)
    join_tokens = Endpoint(access_calls.join_tokens)
    revoke_join_token = Endpoint(access_calls.revoke_join_token)
    keys = Endpoint(access_calls.keys)
    create_key = Endpoint(access_calls.create_key)
    revoke_key = Endpoint(access_calls.revoke_key)
    audit = Endpoint(access_calls.audit)
    check_audit = Endpoint(access_calls.check_audit)
    dashboard_link = Endpoint(access_calls.dashboard_link)
    usage = Endpoint(metric_calls.usage)

    submit = Endpoint(task_calls.submit)
    submit_and_wait = Endpoint(task_calls.submit_and_wait)
    get_task = Endpoint(task_calls.get_task)
    explain = Endpoint(task_calls.explain)
    job_status = Endpoint(task_calls.job_status)
    wait = Endpoint(task_calls.wait)
    result = Endpoint(task_calls.result)
    run = Endpoint(task_calls.run)
    cancel = Endpoint(task_calls.cancel)
    requeue = Endpoint(task_calls.requeue)
    discard = Endpoint(task_calls.discard)
    logs = StreamEndpoint(output_calls.logs)
    follow = StreamEndpoint(output_calls.follow)
    stream = StreamEndpoint(output_calls.stream)

    start_exec = Endpoint(output_calls.start_exec)
    exec_output = StreamEndpoint(output_calls.exec_output)
    stop_exec = Endpoint(output_calls.stop_exec)

    submit_many = Endpoint(task_calls.submit_many)
    submit_batch = Endpoint(task_calls.submit_batch)
    collect = Endpoint(task_calls.collect)
    wait_many = Endpoint(task_calls.wait_many)
    list_tasks = StreamEndpoint(task_calls.list_tasks)
    cancel_tasks = Endpoint(task_calls.cancel_tasks)
    requeue_tasks = Endpoint(task_calls.requeue_tasks)

    nodes = Endpoint(node_calls.nodes)
    node = Endpoint(node_calls.node)
    workers = Endpoint(worker_calls.workers)
    worker = Endpoint(worker_calls.worker)
    launch_worker = Endpoint(worker_calls.launch_worker)
    launch_worker_of_type = Endpoint(worker_calls.launch_worker_of_type)
    release_gpu = Endpoint(node_calls.release_gpu)
    stop_worker = Endpoint(worker_calls.stop_worker)
    restart_worker = Endpoint(worker_calls.restart_worker)
    reset_breakers = Endpoint(node_calls.reset_breakers)
    models = Endpoint(model_calls.models)
    model_names = Endpoint(model_calls.model_names)
    catalogue = Endpoint(model_calls.catalogue)
    catalogue_model = Endpoint(model_calls.catalogue_model)
    add_model = Endpoint(model_calls.add_model)
    upload_model = Endpoint(model_calls.upload_model)
    remove_model = Endpoint(model_calls.remove_model)
    pull_model = Endpoint(model_calls.pull_model)
    assign_model = Endpoint(model_calls.assign_model)
    unload_model = Endpoint(model_calls.unload_model)
    rebalance = Endpoint(model_calls.rebalance)
    find_node = Endpoint(node_calls.find_node)
    cordon_node = Endpoint(node_calls.cordon_node)
    drain_node = Endpoint(node_calls.drain_node)
    uncordon_node = Endpoint(node_calls.uncordon_node)
    change_node = Endpoint(node_calls.change_node)
    remove_node = Endpoint(node_calls.remove_node)
    windows = Endpoint(node_calls.windows)
    add_window = Endpoint(node_calls.add_window)
    remove_window = Endpoint(node_calls.remove_window)
    job_types = Endpoint(queue_calls.job_types)
    register_job_type = Endpoint(queue_calls.register_job_type)
    target_job_type = Endpoint(queue_calls.target_job_type)
    pause_job_type = Endpoint(queue_calls.pause_job_type)
    resume_job_type = Endpoint(queue_calls.resume_job_type)
    set_batch_limit = Endpoint(queue_calls.set_batch_limit)
    set_cache_ttl = Endpoint(queue_calls.set_cache_ttl)
    clear_cache = Endpoint(queue_calls.clear_cache)
    shares = Endpoint(queue_calls.shares)
    set_share = Endpoint(queue_calls.set_share)
    remove_share = Endpoint(queue_calls.remove_share)
    clear_databases = Endpoint(cluster_calls.clear_databases)

    apps = Endpoint(cluster_calls.apps)
    register_app = Endpoint(cluster_calls.register_app)
    remove_app = Endpoint(cluster_calls.remove_app)
    add_route = Endpoint(cluster_calls.add_route)
    remove_route = Endpoint(cluster_calls.remove_route)

    set_secret = Endpoint(access_calls.set_secret)
    remove_secret = Endpoint(access_calls.remove_secret)
    secrets = Endpoint(access_calls.secrets)

    artifacts = Endpoint(output_calls.artifacts)
    download_artifacts = Endpoint(output_calls.download_artifacts)

    schedule = Endpoint(queue_calls.schedule)
    schedules = Endpoint(queue_calls.schedules)
    add_schedule = Endpoint(queue_calls.add_schedule)
    pause_schedule = Endpoint(queue_calls.pause_schedule)
    resume_schedule = Endpoint(queue_calls.resume_schedule)
    remove_schedule = Endpoint(queue_calls.remove_schedule)
    run_schedule = Endpoint(queue_calls.run_schedule)
    webhook_secret = Endpoint(queue_calls.webhook_secret)

    upload = Endpoint(object_calls.upload)
    download = Endpoint(object_calls.download)
    worker_types = Endpoint(worker_calls.worker_types)
    register_worker_type = Endpoint(worker_calls.register_worker_type)
    remove_worker_type = Endpoint(worker_calls.remove_worker_type)
    scale_worker_type = Endpoint(worker_calls.scale_worker_type)
    scaling = Endpoint(worker_calls.scaling)


class Client(Calls, SyncDriver):
    """Talks to a manager; calls return when they are done. Safe to share by threads.

    Args:
        url: The manager; without one, the `manager_url` setting.
        api_key: The key to show; without one, the `api_key` setting, then the
            `admin.key` of the data folder. "" shows none.
        home: The data folder; without one, the `home` setting.
        ca_file: Certificates to trust beside the system's, for https.
        timeout_s: How long one answer may take.
        patience: How long calls that may be repeated are repeated.
    """


class AsyncClient(Calls, AsyncDriver):
    """The same calls, awaited; one event loop per client. Arguments as for Client."""
