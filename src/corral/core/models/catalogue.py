"""Models by name as the catalogue knows them: where their files are, and what was seen.

Sources are texts: `s3://bucket/prefix`, `hf:owner/name`, `model-manager`, `upload`, or
the path of a folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from corral.core.nodes.peer import edition_of, mark_of
from corral.core.tree import fault_of
from corral.errors import InvalidField

TYPES = (
    "llm", "vision", "tts", "diffusion", "embedding", "classifier", "other",
    "generate", "embed", "classify", "caption", "speak", "draw",
)  # fmt: skip
"""Words for what a model does: those of other systems, and the plain names of ours."""
READING, READY, FAILED = "reading", "ready", "failed"
FOLDER, HUB, S3, SERVICE, UPLOAD = "folder", "hf", "s3", "model-manager", "upload"
_REPO = re.compile(r"[\w.-]+(/[\w.-]+)?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEWEST = 0.3


@dataclass(frozen=True, slots=True)
class ModelFile:
    """`parts` are the objects it lies in, where the manager's store has it."""

    name: str
    size: int
    sha256: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """What loads on one kind of device, in one precision, came to.

    `peaks` are the most that batches took beside it: (calls of the batch, MB).
    """

    device: str
    precision: str
    memory_mb: float | None = None
    load_s: float | None = None
    loads: int = 0
    peaks: tuple[tuple[int, float], ...] = ()

    def with_peaks(self, peaks: Mapping[int, float]) -> Measure:
        """The newest word on a size of batch counts."""
        return replace(self, peaks=tuple(sorted({**dict(self.peaks), **peaks}.items())))

    def with_load(self, memory_mb: float | None, load_s: float | None) -> Measure:
        """Newer loads count more than older ones."""
        return replace(
            self,
            memory_mb=_blend(self.memory_mb, memory_mb),
            load_s=_blend(self.load_s, load_s),
            loads=self.loads + 1,
        )


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One row of the catalogue.

    `status` is reading while its files are looked at, then ready, or failed with
    `error`. `wanted` is the revision that was asked for, `revision` the one found.
    """

    name: str
    model_type: str = "other"
    source: str = ""
    wanted: str = ""
    revision: str = ""
    files: tuple[ModelFile, ...] = ()
    status: str = READING
    error: str | None = None
    trust_remote_code: bool = False
    dtype: str | None = None
    memory_mb: float | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    uses: int = 0
    last_used_at: datetime | None = None
    measures: tuple[Measure, ...] = field(default=())

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def edition(self) -> str:
        """What a worker that has it in memory must have loaded; empty while its source
        is being read.
        """
        if self.status != READY:
            return ""
        mark = mark_of((file.sha256, file.name) for file in self.files)
        return edition_of(mark, self.model_type, self.dtype, self.trust_remote_code)

    @property
    def needs_mb(self) -> float | None:
        """GPU memory: the least that was measured, else what was told."""
        seen = [m.memory_mb for m in self.measures if m.memory_mb]
        return min(seen, default=self.memory_mb)

    @property
    def loads(self) -> int:
        return sum(measure.loads for measure in self.measures)

    def with_load(
        self, device: str, precision: str, memory_mb: float | None, load_s: float | None
    ) -> CatalogueModel:
        seen = self._measure(device, precision).with_load(memory_mb, load_s)
        return self._with_measure(seen)

    def with_peaks(
        self, device: str, precision: str, peaks: Mapping[int, float]
    ) -> CatalogueModel:
        return self._with_measure(self._measure(device, precision).with_peaks(peaks))

    def _measure(self, device: str, precision: str) -> Measure:
        key = (device, precision)
        found = (m for m in self.measures if (m.device, m.precision) == key)
        return next(found, Measure(*key))

    def _with_measure(self, measure: Measure) -> CatalogueModel:
        known = {(m.device, m.precision): m for m in (*self.measures, measure)}
        return replace(self, measures=tuple(known[k] for k in sorted(known)))


def _blend(old: float | None, new: float | None) -> float | None:
    if old is None or new is None:
        return old if new is None else new
    return old + (new - old) * _NEWEST


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`place` is a path, a URL, a repository, or the name a service has for it."""

    kind: str
    place: str = ""


def read_source(text: str) -> ModelSource:
    """What a source's text says.

    Raises:
        InvalidField: nothing can be made of it.
    """
    if text.startswith("s3://"):
        parts = text[5:].strip("/").split("/")
        is_plain = text.isprintable() and " " not in text
        if not is_plain or not {"", ".", ".."}.isdisjoint(parts):
            raise InvalidField("an S3 source is s3://bucket/prefix", field="source")
        return ModelSource(S3, text)
    if text.startswith(("hf:", "hf://")):
        repo = text.removeprefix("hf:").removeprefix("//")
        if not _REPO.fullmatch(repo) or ".." in repo:
            raise InvalidField("a hub source is hf:owner/name", field="source")
        return ModelSource(HUB, repo)
    kind, _, rest = text.partition(":")
    if kind in (SERVICE, UPLOAD):
        # It is looked for in folders of the manager's machine under this name.
        if rest and fault_of(rest):
            raise InvalidField(
                f"{kind}: is followed by a model's name, not by a path; the source of "
                "a folder is its path alone",
                field="source",
            )
        return ModelSource(kind, rest)
    if not text.strip() or "\0" in text or "://" in text:
        raise InvalidField(
            "a source is a folder, hf:owner/name, s3://bucket/prefix or model-manager",
            field="source",
        )
    return ModelSource(FOLDER, text)


def check_type(text: str) -> str:
    """Raises InvalidField when nobody would know what such a model does."""
    if text not in TYPES:
        raise InvalidField(
            f"model type {text!r} is unknown; known: {', '.join(TYPES)}", field="type"
        )
    return text


def check_files(files: tuple[ModelFile, ...]) -> tuple[ModelFile, ...]:
    """Raises InvalidField for a name that leads out of a folder, or comes twice."""
    names = [file.name for file in files]
    for file in files:
        if why := fault_of(file.name):
            raise InvalidField(f"file {file.name!r}: {why}", field="files")
        if file.size < 0 or not _DIGEST.fullmatch(file.sha256):
            raise InvalidField(f"file {file.name!r} has no SHA-256", field="files")
    if len(set(names)) < len(names):
        raise InvalidField("a file comes twice", field="files")
    return tuple(sorted(files, key=lambda file: file.name))
