"""Client and AsyncClient: the list of calls, once, under two drivers."""

from __future__ import annotations

from corral.client import alerts as alert_calls
from corral.client import artifacts as artifact_calls
from corral.client import breaker, bulk, cluster, execs, log, objects, secrets, task
from corral.client import catalogue as catalogue_calls
from corral.client import dashboard as dashboard_calls
from corral.client import explain as explain_calls
from corral.client import journal as journal_calls
from corral.client import keys as key_calls
from corral.client import live as live_calls
from corral.client import metrics as metric_calls
from corral.client import models as model_calls
from corral.client import nodes as node_calls
from corral.client import output as output_calls
from corral.client import rebalancing as rebalance_calls
from corral.client import scaling as scaling_calls
from corral.client import schedule as schedule_calls
from corral.client import shares as share_calls
from corral.client.driver import AwaitingDriver, BlockingDriver
from corral.client.endpoint import Endpoint, StreamEndpoint


class Calls:
    """Every call of the client; what each does is told where it is declared."""

    health = Endpoint(cluster.health)
    cluster_status = Endpoint(cluster.cluster_status)
    cluster_metrics = Endpoint(metric_calls.cluster_metrics)
    node_metrics = Endpoint(metric_calls.node_metrics)
    drain = Endpoint(cluster.drain)
    journal = Endpoint(journal_calls.journal)
    events = Endpoint(alert_calls.events)
    follow_events = StreamEndpoint(alert_calls.follow_events)
    live_events = StreamEndpoint(live_calls.live_events)
    alerts = Endpoint(alert_calls.alerts)
    acknowledge_alert = Endpoint(alert_calls.acknowledge_alert)
    cluster_health = Endpoint(alert_calls.cluster_health)
    join_token = Endpoint(cluster.join_token)
    keys = Endpoint(key_calls.keys)
    create_key = Endpoint(key_calls.create_key)
    revoke_key = Endpoint(key_calls.revoke_key)
    dashboard_link = Endpoint(dashboard_calls.dashboard_link)
    usage = Endpoint(dashboard_calls.usage)

    submit = Endpoint(task.submit)
    get_task = Endpoint(task.get_task)
    explain = Endpoint(explain_calls.explain)
    job_status = Endpoint(task.job_status)
    wait = Endpoint(task.wait)
    result = Endpoint(task.result)
    run = Endpoint(task.run)
    cancel = Endpoint(task.cancel)
    requeue = Endpoint(task.requeue)
    discard = Endpoint(task.discard)
    logs = StreamEndpoint(log.logs)
    follow = StreamEndpoint(log.follow)
    stream = StreamEndpoint(output_calls.stream)

    start_exec = Endpoint(execs.start_exec)
    exec_output = StreamEndpoint(execs.exec_output)
    stop_exec = Endpoint(execs.stop_exec)

    submit_many = Endpoint(bulk.submit_many)
    submit_batch = Endpoint(bulk.submit_batch)
    collect = Endpoint(bulk.collect)
    wait_many = Endpoint(bulk.wait_many)
    list_tasks = StreamEndpoint(bulk.list_tasks)
    cancel_tasks = Endpoint(bulk.cancel_tasks)
    requeue_tasks = Endpoint(bulk.requeue_tasks)

    nodes = Endpoint(cluster.nodes)
    node = Endpoint(cluster.node)
    workers = Endpoint(cluster.workers)
    worker = Endpoint(cluster.worker)
    launch_worker = Endpoint(cluster.launch_worker)
    launch_worker_of_type = Endpoint(cluster.launch_worker_of_type)
    release_gpu = Endpoint(cluster.release_gpu)
    stop_worker = Endpoint(cluster.stop_worker)
    restart_worker = Endpoint(cluster.restart_worker)
    reset_breakers = Endpoint(breaker.reset_breakers)
    models = Endpoint(model_calls.models)
    model_names = Endpoint(model_calls.model_names)
    catalogue = Endpoint(catalogue_calls.catalogue)
    catalogue_model = Endpoint(catalogue_calls.catalogue_model)
    add_model = Endpoint(catalogue_calls.add_model)
    upload_model = Endpoint(catalogue_calls.upload_model)
    remove_model = Endpoint(catalogue_calls.remove_model)
    pull_model = Endpoint(catalogue_calls.pull_model)
    assign_model = Endpoint(model_calls.assign_model)
    unload_model = Endpoint(model_calls.unload_model)
    rebalance = Endpoint(rebalance_calls.rebalance)
    find_node = Endpoint(node_calls.find_node)
    cordon_node = Endpoint(node_calls.cordon_node)
    drain_node = Endpoint(node_calls.drain_node)
    uncordon_node = Endpoint(node_calls.uncordon_node)
    change_node = Endpoint(node_calls.change_node)
    remove_node = Endpoint(node_calls.remove_node)
    windows = Endpoint(node_calls.windows)
    add_window = Endpoint(node_calls.add_window)
    remove_window = Endpoint(node_calls.remove_window)
    job_types = Endpoint(cluster.job_types)
    register_job_type = Endpoint(cluster.register_job_type)
    target_job_type = Endpoint(cluster.target_job_type)
    pause_job_type = Endpoint(share_calls.pause_job_type)
    resume_job_type = Endpoint(share_calls.resume_job_type)
    set_batch_limit = Endpoint(share_calls.set_batch_limit)
    set_cache_ttl = Endpoint(share_calls.set_cache_ttl)
    clear_cache = Endpoint(share_calls.clear_cache)
    shares = Endpoint(share_calls.shares)
    set_share = Endpoint(share_calls.set_share)
    remove_share = Endpoint(share_calls.remove_share)
    clear_databases = Endpoint(cluster.clear_databases)

    apps = Endpoint(cluster.apps)
    register_app = Endpoint(cluster.register_app)
    remove_app = Endpoint(cluster.remove_app)
    add_route = Endpoint(cluster.add_route)
    remove_route = Endpoint(cluster.remove_route)

    set_secret = Endpoint(secrets.set_secret)
    remove_secret = Endpoint(secrets.remove_secret)
    secrets = Endpoint(secrets.secrets)

    artifacts = Endpoint(artifact_calls.artifacts)
    download_artifacts = Endpoint(artifact_calls.download_artifacts)

    schedule = Endpoint(schedule_calls.schedule)
    schedules = Endpoint(schedule_calls.schedules)
    add_schedule = Endpoint(schedule_calls.add_schedule)
    pause_schedule = Endpoint(schedule_calls.pause_schedule)
    resume_schedule = Endpoint(schedule_calls.resume_schedule)
    remove_schedule = Endpoint(schedule_calls.remove_schedule)
    run_schedule = Endpoint(schedule_calls.run_schedule)
    webhook_secret = Endpoint(schedule_calls.webhook_secret)

    upload = Endpoint(objects.upload)
    download = Endpoint(objects.download)
    worker_types = Endpoint(cluster.worker_types)
    register_worker_type = Endpoint(cluster.register_worker_type)
    remove_worker_type = Endpoint(cluster.remove_worker_type)
    scale_worker_type = Endpoint(scaling_calls.scale_worker_type)
    scaling = Endpoint(scaling_calls.scaling)


class Client(Calls, BlockingDriver):
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


class AsyncClient(Calls, AwaitingDriver):
    """The same calls, awaited; one event loop per client. Arguments as for Client."""
