"""Trees of files as values: what is written is read, and nothing leads out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.tree import (
    CHUNK_BYTES,
    Tree,
    TreeFile,
    TreeLink,
    decode,
    encode,
    is_tree,
    manifest,
    pieces_of,
    stays,
)
from corral.errors import BadRequest

D = "a" * 64


def told(*rows: Any) -> bytes:
    text = json.dumps({"corral": "tree", "rows": list(rows)}, separators=(",", ":"))
    return text.encode()


def test_a_tree_is_read_as_it_was_written() -> None:
    large = TreeFile("b/large", 2 * CHUNK_BYTES + 1, D, True, ("b" * 64, "c" * 64, D))
    tree = Tree((TreeFile("a", 0, D), large), (TreeLink("l", "b/large"),))
    (data,) = encode(tree)
    assert is_tree(data)
    assert pieces_of(data) == ()
    assert decode(data) == tree
    assert tree.files[0].chunks == ()
    assert tree.chunks() == {"b" * 64: CHUNK_BYTES, "c" * 64: CHUNK_BYTES, D: 1}


def test_the_order_files_come_in_does_not_matter() -> None:
    files = (TreeFile("b", 1, D), TreeFile("a", 1, D))
    assert encode(Tree(files)) == encode(Tree(files[::-1]))


def test_a_long_list_is_cut_into_pieces() -> None:
    files = tuple(TreeFile(f"folder/{n:0100d}", 1, D) for n in range(50_000))
    pieces = encode(Tree(files))
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= CHUNK_BYTES
    head = manifest([D, "b" * 64])
    assert is_tree(head)
    assert pieces_of(head) == (D, "b" * 64)
    assert decode(head, pieces).files == files


@given(st.text(min_size=1, max_size=50))
def test_whatever_a_name_is_it_is_kept_or_refused(name: str) -> None:
    rows = told(["f", name, 1, D, 0])
    try:
        (file,) = decode(rows).files
    except BadRequest:
        return
    assert file.name == name
    parts = name.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert "\0" not in name


@pytest.mark.parametrize(
    "row",
    [
        ["f", "../x", 1, D, 0],
        ["f", "/etc/passwd", 1, D, 0],
        ["f", "a//b", 1, D, 0],
        ["f", "a/./b", 1, D, 0],
        ["f", "", 1, D, 0],
        ["f", "a\0b", 1, D, 0],
        ["f", "x" * 5000, 1, D, 0],
        ["f", "a", -1, D, 0],
        ["f", "a", 1, "A" * 64, 0],
        ["f", "a", CHUNK_BYTES + 1, D, 0],
        ["f", "a", 1, D, 0, D],
        ["l", "a", "/etc"],
        ["l", "a", "../b"],
        ["l", "a/b", "../../c"],
        ["l", "a", ""],
        ["d", "dev", 1],
        "row",
        None,
    ],
)
def test_a_row_that_does_not_belong_is_refused(row: Any) -> None:
    with pytest.raises(BadRequest):
        decode(told(row))


def test_no_two_things_have_one_place() -> None:
    for rows in (
        [["f", "a", 1, D, 0], ["f", "a", 2, D, 0]],
        [["f", "a", 1, D, 0], ["f", "a/b", 2, D, 0]],
        [["l", "a", "b"], ["f", "a/b/c", 2, D, 0]],
    ):
        with pytest.raises(BadRequest):
            decode(told(*rows))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"corral":"tree"}', b"\x1f\x8b"])
def test_what_is_no_tree_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(data)


def test_a_link_is_judged_by_where_it_leads() -> None:
    assert stays("a/b", "../c")
    assert stays("a", "./b/../c")
    assert not stays("a", "b/../../c")
    assert not stays("a", "C:\\x")
