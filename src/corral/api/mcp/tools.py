"""The tools of the MCP face: each is one call of the HTTP API, and nothing more.

What a tool may do, checks and answers is the business of that call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from corral.core.access.key import Scope
from corral.core.tasks.job_type import NAME

_FIELD = re.compile(r"{(\w+)}")
Id = Annotated[str, Meta(pattern=f"^{NAME.pattern}$", description="Its id")]
Limit = Annotated[int, Meta(ge=1, le=1000, description="Rows at most")]
Offset = Annotated[int, Meta(ge=0, description="Rows to leave out")]
Priority = Annotated[
    int | str,
    Meta(description="low, normal, high, critical or an integer; higher runs first"),
]
Input = Annotated[Raw, Meta(description="Its input, any JSON value")]
OwnId = Annotated[str, Meta(description="Your own id for it; one is made otherwise")]
TaskStatus = Literal[
    "queued", "running", "completed", "failed", "error", "cancelled", "timed_out"
]


class Arguments(Struct, forbid_unknown_fields=True):
    """Nothing is asked for."""


class JobArguments(Arguments):
    schema_name: Annotated[str, Meta(description="Job type, see list_job_types")]
    payload: Input | UnsetType = UNSET
    id: OwnId | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET


class TaskArguments(Arguments):
    task_type: Annotated[str, Meta(description="Job type, see list_job_types")]
    parameters: Input | UnsetType = UNSET
    task_id: OwnId | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    timeout: Annotated[float, Meta(description="Seconds it may run")] | UnsetType = (
        UNSET
    )
    retries: Annotated[int, Meta(description="Tries after a failure")] | UnsetType = (
        UNSET
    )
    labels: (
        Annotated[dict[str, str], Meta(description="Words to find it by")] | UnsetType
    ) = UNSET


class OfJob(Arguments):
    job_id: Id


class OfWorker(Arguments):
    worker_id: Id


class OfTask(Arguments):
    task_id: Id


class WaitForTask(OfTask):
    wait: (
        Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for its end")]
        | UnsetType
    ) = UNSET


class LogsOfTask(WaitForTask):
    after: Annotated[str, Meta(description="Cursor to go on from")] | UnsetType = UNSET


class SomeTasks(Arguments):
    status: TaskStatus | UnsetType = UNSET
    task_type: Annotated[str, Meta(description="Only of this type")] | UnsetType = UNSET
    worker_id: Annotated[str, Meta(description="Only on this one")] | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET


class SomeWorkers(Arguments):
    status: Literal["online", "busy", "error", "offline"] | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class McpTool:
    """`arguments` named in `path` stand there; others are the body, or the query."""

    name: str
    method: str
    path: str
    description: str
    arguments: type[Arguments] = Arguments
    scope: Scope = Scope.READ
    is_destructive: bool = False

    def shown(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": _schema(self.arguments),
            "annotations": {
                "readOnlyHint": self.scope is Scope.READ,
                "destructiveHint": self.is_destructive,
            },
        }

    def request(self, arguments: Raw) -> tuple[str, dict[str, Any], bytes | None]:
        """Path, query and body of the call.

        Raises:
            msgspec.ValidationError, msgspec.DecodeError: what is wrong with them.
        """
        said = msgspec.json.decode(arguments, type=self.arguments)
        given = {
            name: value
            for name in said.__struct_fields__
            if (value := getattr(said, name)) is not UNSET
        }
        path = _FIELD.sub(lambda m: quote(str(given.pop(m[1])), safe=""), self.path)
        if self.method == "POST":
            return path, {}, msgspec.json.encode(given)
        return path, given, None


def _schema(kind: type[Arguments]) -> dict[str, Any]:
    (_,), parts = msgspec.json.schema_components(
        [kind], ref_template="#/$defs/{name}", schema_hook=lambda _: {}
    )
    schema: dict[str, Any] = parts[kind.__name__]
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


TOOLS = {
    tool.name: tool
    for tool in (
        McpTool("endpoints", "POST", "/endpoints", "Names of all calls of the job API"),
        McpTool("status", "POST", "/status", "Is the service available?"),
        McpTool("heartbeat", "POST", "/heartbeat", "A sign of life, with a few counts"),
        McpTool(
            "cluster_status",
            "GET",
            "/cluster/status",
            "The cluster in numbers: nodes, workers, tasks by state, memory",
        ),
        McpTool("list_nodes", "GET", "/nodes", "Every machine and how it is doing"),
        McpTool(
            "list_workers",
            "GET",
            "/workers",
            "Workers: what they run, their state and what is wrong with them",
            SomeWorkers,
        ),
        McpTool(
            "get_worker_status",
            "POST",
            "/get_worker_status",
            "One worker: idle, running (and which job), error or nonexistent",
            OfWorker,
        ),
        McpTool(
            "list_job_types",
            "GET",
            "/job-types",
            "Kinds of work there are, their schemas and how many wait",
        ),
        McpTool(
            "submit_job",
            "POST",
            "/submit_job",
            "Submit a job; answers with its id and status, not with its output",
            JobArguments,
            Scope.SUBMIT,
        ),
        McpTool(
            "get_job_status",
            "POST",
            "/get_job_status",
            "A job: status, worker and output",
            OfJob,
        ),
        McpTool(
            "submit_task",
            "POST",
            "/tasks",
            "Submit a task with a timeout, retries or labels",
            TaskArguments,
            Scope.SUBMIT,
        ),
        McpTool(
            "get_task",
            "GET",
            "/tasks/{task_id}",
            "A task (a job is one): result, error, attempts; one that has not begun "
            "says why in `waiting`. With wait, answers when it has ended",
            WaitForTask,
        ),
        McpTool(
            "explain_task",
            "GET",
            "/tasks/{task_id}/explain",
            "Why a task waits and what would help, or why it ran where it did",
            OfTask,
        ),
        McpTool(
            "get_task_logs",
            "GET",
            "/tasks/{task_id}/logs",
            "What a task printed",
            LogsOfTask,
        ),
        McpTool("list_tasks", "GET", "/tasks", "Tasks, newest first", SomeTasks),
        McpTool(
            "requeue_task",
            "POST",
            "/tasks/{task_id}/requeue",
            "Run an ended task again under its id",
            OfTask,
            Scope.SUBMIT,
        ),
        McpTool(
            "cancel_task",
            "DELETE",
            "/tasks/{task_id}",
            "Cancel a task; a running one is stopped",
            OfTask,
            Scope.SUBMIT,
            is_destructive=True,
        ),
    )
}
