"""Asks a model hub which files a model has. Nothing large is fetched here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx

from corral.core.models import hub
from corral.core.models.catalogue import ModelFile
from corral.errors import NotFound, Unavailable
from corral.trust import tls_context

TIMEOUT_S = 30.0
SMALL_BYTES = 64 << 20
"""Files without a SHA-256 of their own are read to get one; none is larger."""
INFO_BYTES = 32 << 20
_TYPES = {
    "text-generation": "llm",
    "feature-extraction": "embedding",
    "sentence-similarity": "embedding",
    "text-classification": "classifier",
    "image-to-text": "vision",
    "image-text-to-text": "vision",
    "text-to-speech": "tts",
    "text-to-image": "diffusion",
}


class _Refused(Unavailable):
    def __init__(self, status: int) -> None:
        super().__init__(f"the model hub answered {status}")
        self.status = status


class Hub:
    """One hub, by its address; `token` is for models that are not everybody's."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def is_private(self) -> bool:
        """Must nodes come to us, because only we have the token?"""
        return bool(self._headers)

    def file_url(self, repo: str, revision: str, name: str) -> str:
        return self._url + hub.file_path(repo, revision, name)

    async def survey(
        self, repo: str, revision: str
    ) -> tuple[tuple[ModelFile, ...], str, str]:
        """Its files, the revision found, and what such a model does.

        Raises:
            NotFound: the hub has no such model, or not for everybody.
            Unavailable: it does not answer.
        """
        async with self._client() as client:
            told = await self._info(client, repo, revision or hub.MAIN)
            commit = str(told.get("sha") or revision or hub.MAIN)
            rows = {str(row["rfilename"]): row for row in told.get("siblings") or []}
            files = [
                await self._file(client, repo, commit, name, rows[name])
                for name in hub.chosen(rows)
            ]
        if not files:
            raise NotFound(f"the hub's model {repo} has no files")
        kind = _TYPES.get(str(told.get("pipeline_tag")), "other")
        return tuple(files), commit, kind

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            timeout=TIMEOUT_S,
            headers=self._headers,
            follow_redirects=True,
            verify=tls_context(self._url, None),
        )

    async def read(
        self, repo: str, revision: str, name: str, start: int
    ) -> AsyncIterator[bytes]:
        """A file's bytes from `start` on, for nodes that cannot reach the hub."""
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        url = self.file_url(repo, revision, name)
        try:
            async with (
                self._client() as client,
                client.stream("GET", url, headers=headers) as answer,
            ):
                if answer.status_code not in (200, 206):
                    raise self._away(f"it answered {answer.status_code} for {name}")
                skip = start if answer.status_code == 200 else 0
                async for piece in answer.aiter_raw():
                    if skip < len(piece):
                        yield piece[skip:]
                    skip = max(0, skip - len(piece))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(str(error) or type(error).__name__) from error

    async def _info(
        self, client: httpx.AsyncClient, repo: str, revision: str
    ) -> dict[str, Any]:
        said = bytearray()
        try:
            url = self._url + hub.info_path(repo, revision)
            async with aclosing(self._pieces(client, url)) as pieces:
                async for piece in pieces:
                    said += piece
                    if len(said) > INFO_BYTES:
                        raise Unavailable("the model hub's answer is far too long")
            return dict(json.loads(said))
        except _Refused as refusal:
            if refusal.status in (401, 403, 404):
                raise NotFound(
                    f"the hub has no model {repo} at {revision}, or not for "
                    f"everybody: it answered {refusal.status} (CORRAL_MODEL_HUB_TOKEN)"
                ) from None
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise Unavailable(f"the model hub's answer is of no use: {error}") from None

    async def _file(
        self,
        client: httpx.AsyncClient,
        repo: str,
        commit: str,
        name: str,
        row: dict[str, Any],
    ) -> ModelFile:
        large = row.get("lfs") or {}
        if "sha256" in large:
            size = int(large.get("size") or row.get("size") or 0)
            return ModelFile(name, size, str(large["sha256"]))
        if int(row.get("size") or 0) > SMALL_BYTES:
            raise NotFound(f"the hub tells no SHA-256 of {name}, which is large")
        digest, size = hashlib.sha256(), 0
        url = self.file_url(repo, commit, name)
        async with aclosing(self._pieces(client, url)) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > SMALL_BYTES:
                    # Whatever size was told.
                    raise NotFound(f"the hub's {name} is large, and has no SHA-256")
                digest.update(piece)
        return ModelFile(name, size, digest.hexdigest())

    async def _pieces(
        self, client: httpx.AsyncClient, url: str
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of an answer, as they come: it may have any number of them."""
        headers = {"Accept-Encoding": "identity"}
        try:
            async with client.stream("GET", url, headers=headers) as answer:
                if answer.status_code != 200:
                    raise _Refused(answer.status_code)
                async for piece in answer.aiter_raw():
                    yield piece
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(str(error) or type(error).__name__) from error

    def _away(self, why: str) -> Unavailable:
        host = httpx.URL(self._url).host
        return Unavailable(f"the model hub at {host} does not answer: {why}")
