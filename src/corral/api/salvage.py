"""Cuts a batch that strict JSON refuses into its rows, so that only the culprit is.

It finds where rows begin and end and reads nothing of them: the others keep their text
to the letter, and nesting of any depth costs no stack.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from corral.errors import InvalidJson

# Far beyond what any reader takes; keeps a hostile body from being walked to its end.
MAX_DEPTH = 200_000
_HEAD = re.compile(rb'\s*\{\s*"tasks"\s*:\s*\[')
_TAIL = re.compile(rb"\]\s*\}\s*")
# A whole string, a lone quote (its string never ends), brackets in runs, a comma.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\[\x00-\xff][^"\\]*+)*+"|"|[\[{]+|[\]}]+|,')


def split_rows(body: bytes) -> list[bytes]:
    """The rows of `{"tasks": [...]}`, each as it stands there.

    Raises:
        InvalidJson: the batch itself is broken, not only a row of it.
    """
    head = _HEAD.match(body)
    if head is None:
        raise InvalidJson('the body is not valid JSON, or not {"tasks": [...]}')
    cuts = [head.end() - 1, *_cuts(body, head.end())]
    rows = [body[start + 1 : end].strip() for start, end in itertools.pairwise(cuts)]
    if not all(rows) or not _TAIL.fullmatch(body, cuts[-1]):
        raise InvalidJson("the list of tasks is not valid JSON")
    return rows


def _cuts(body: bytes, start: int) -> Iterator[int]:
    """Where rows end: at the commas between them, and at the bracket after the last."""
    depth = 0
    for token in _TOKEN.finditer(body, start):
        text = token[0]
        if text == b"," and depth == 0:
            yield token.start()
        elif text[:1] in b"[{":
            depth += len(text)
        elif text[:1] in b"]}":
            if len(text) > depth:
                yield token.start() + depth
                return
            depth -= len(text)
        if text == b'"' or depth > MAX_DEPTH:
            break
    raise InvalidJson("the body is not valid JSON: a row has no end")
