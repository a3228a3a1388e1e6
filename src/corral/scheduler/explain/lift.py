"""What would end a state that keeps a task from every worker, whatever they do."""

from __future__ import annotations

from collections.abc import Mapping

from corral.scheduler.explain.values import Change
from corral.scheduler.plan import Reason
from corral.scheduler.world.share import GROUP_KEY, Use

_MOST = 6


def own_change(reason: Reason, out: Mapping[str, Use]) -> Change:
    """What would end a state that keeps a task from every worker.

    `out` is what counts against shares now, by task.
    """
    details = reason.details
    if reason.reason == "same_question":
        words = f"is answered when task {details['task_id']} has completed"
        return Change("wait", words, details)
    if reason.reason == "dependencies":
        named = ", ".join(details["depends_on"])
        words = f"starts when task(s) {named} have completed"
        return Change("dependencies", words, details)
    if reason.reason == "not_before":
        in_s = details["starts_in_s"]
        words = f"in {in_s:g} s, or now without run_after"
        return Change("run_after", words, details, in_s=in_s)
    if reason.reason == "type_paused":
        job_type = details["job_type"]
        command = f"corral job-type resume {job_type}"
        return Change("resume_type", f"resume job type '{job_type}'", details, command)
    if reason.reason == "quota":
        return _quota(reason, out)
    words = "let the cluster go on: POST /cluster/drain?resume=true"
    return Change("resume", words)


def _quota(reason: Reason, out: Mapping[str, Use]) -> Change:
    """More for its share or group, or less of it at work."""
    details = reason.details
    word = "group" if "group" in details else "share"
    name = details[word]
    if "gpu_seconds_per_day" in details:
        in_s, quota_s = details["starts_in_s"], details["gpu_seconds_per_day"]
        words = (
            f"raise the GPU-seconds of {name} from {quota_s:g}, or wait for midnight"
        )
        return Change("quota", words, details, in_s=in_s)
    most = details["max_running"]
    inside = sorted(
        task_id
        for task_id, use in out.items()
        for bucket in use.buckets
        if bucket.name in (name, f"{GROUP_KEY}={name}")
    )
    ends = f"task {inside[0]}" if len(inside) == 1 else "one of its tasks"
    words = f"raise the quota of {name} from {most}, or wait until {ends} ends"
    return Change("quota", words, {**details, "tasks": inside[:_MOST]})
