"""Jobs as the job API has them: a schema, and jobs made from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corral.errors import InvalidField


class JobSchema(BaseModel):
    """A kind of job: its name and the models of its input and output."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str
    input_schema: type[BaseModel] | None = None
    output_schema: type[BaseModel] | None = None


class Job(BaseModel):
    """One piece of work; `payload` is plain JSON or a model of the input."""

    id: str = Field(default_factory=lambda: str(uuid4()))
    name: str
    schema_name: str
    payload: Any = Field(default_factory=dict)
    status: str = "queued"
    created_at: str = Field(default_factory=lambda: datetime.now(UTC).isoformat())
    started_at: str | None = None
    completed_at: str | None = None
    error: str | None = None
    entrypoint: str | None = None
    priority: int | None = None


def job_from_schema(schema: JobSchema, input_data: BaseModel | dict[str, Any]) -> Job:
    """A job of this schema; its input is checked against the schema's model.

    Raises:
        InvalidField: the input does not fit the model.
    """
    model = schema.input_schema
    try:
        if model is not None and not isinstance(input_data, model):
            input_data = model.model_validate(_plain(input_data))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "input"
        raise InvalidField(f"{field}: {first['msg']}", field=field) from error
    return Job(name=schema.name, schema_name=schema.name, payload=_plain(input_data))


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
