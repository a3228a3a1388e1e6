"""What a log line is made of, in every process: its fields, and no secrets.

`bound` holds what all lines of a context say, such as the request they are about.
The processes with much to say put lines together with structlog
(`cli/terminal/log.py`); a worker's supervisor, which must start at once, does it here
with the same fields.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

MASK = "********"
bound: ContextVar[Mapping[str, str]] = ContextVar("bound", default=MappingProxyType({}))
_SHORTEST = 8
_NAMES = re.compile(
    r"(?i)(^|_)(api_?key|key|token|secret|passw(or)?d|authorization|credentials)$"
)
_PATTERNS = (
    # user:password@ of a URL; the user may stay.
    (
        re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@]*):[^/\s@]+@", re.I),
        rf"\1:{MASK}@",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {MASK}"),
    (
        re.compile(
            r"(?i)\b((?:[a-z0-9]+_)*(?:api_?key|token|secret|passw(?:or)?d))"
            r"(\"?\s*[=:]\s*\"?)[^\s\"'&,;]{4,}"
        ),
        rf"\1\2{MASK}",
    ),
    # Our own keys and those of model hubs and code hosts, wherever they stand.
    (re.compile(r"\bcorral_[0-9a-f]{12}_[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\b(hf_|sk-|ghp_|glpat-|github_pat_)[A-Za-z0-9_-]{12,}"), MASK),
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class Redaction:
    """Takes secrets out of lines: those that look like one, and those it was told."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        told = sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len)
        words = "|".join(map(re.escape, reversed(told)))
        self._told = re.compile(words) if words else None

    def text(self, said: str) -> str:
        if self._told is not None:
            said = self._told.sub(MASK, said)
        for pattern, instead in _PATTERNS:
            said = pattern.sub(instead, said)
        return said

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return MASK if value and _NAMES.search(name) else self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(str(key), each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(name, each) for each in value]
        if isinstance(value, int | float | bool) or value is None:
            return value
        return self.text(str(value))

    def __call__(
        self, _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """As structlog calls its processors."""
        for name in list(event):
            event[name] = self.value(name, event[name])
        return event


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """A record as an event: what was said, when, by whom, and all that was added."""
    at = datetime.fromtimestamp(record.created, UTC)
    event: dict[str, Any] = dict(bound.get())
    event |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
    event["event"] = record.getMessage()
    event["level"] = record.levelname.lower()
    event["logger"] = record.name
    event["timestamp"] = at.isoformat().replace("+00:00", "Z")
    if record.exc_info:
        event["exception"] = logging.Formatter().formatException(record.exc_info)
    return event


class LineFormatter(logging.Formatter):
    """One line an event: a JSON object, or text with the added fields behind it."""

    def __init__(
        self,
        log_format: str,
        redaction: Redaction,
        always: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._is_json = log_format == "json"
        self._redaction = redaction
        self._always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        event = {**self._always, **fields(record)}
        self._redaction(None, record.levelname, event)
        if self._is_json:
            return json.dumps(event, ensure_ascii=False, default=str)
        said, level = event.pop("event"), event.pop("level")
        at, name = event.pop("timestamp"), event.pop("logger")
        trouble = event.pop("exception", None)
        more = "".join(f" {key}={value}" for key, value in event.items())
        line = f"{at} {level.upper()} {name}: {said}{more}"
        return f"{line}\n{trouble}" if trouble else line


def said_in(line: str) -> str:
    """The words of a line, whichever format it has."""
    if not line.startswith("{"):
        return line
    try:
        event = json.loads(line)
    except ValueError:
        return line
    return str(event.get("event", line)) if isinstance(event, dict) else line
