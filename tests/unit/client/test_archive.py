"""Folders as archives: same files, same bytes; hostile archives leave no trace."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import BadRequest, Conflict, CorralError, InvalidField, TooLarge
from corral.files.archive import LIMITS, ArchiveLimits, pack, unpack
from tests.property_examples import examples


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def read(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def names(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getnames()


def again(data: bytes, place: Path) -> dict[str, bytes]:
    unpack(data, place)
    return read(place)


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def crafted(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for made, data in members:
            made.size = made.size or len(data)
            tar.addfile(made, io.BytesIO(data))
    return packed.getvalue()


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target), b""


def plain(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return member(name), data


PART = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]),
    min_size=1,
    max_size=12,
).filter(lambda n: n not in (".", "..", ".git", ".gitignore", "__pycache__"))
NAME = st.lists(PART, min_size=1, max_size=3).map("/".join)
FILES = st.dictionaries(NAME, st.binary(max_size=300), max_size=6).filter(
    lambda files: (
        not any(a != b and b.startswith(f"{a}/") for a in files for b in files)
        and all(len(part.encode()) < 200 for name in files for part in name.split("/"))
    )
)
RUNS = settings(max_examples=examples(60), deadline=None)


@RUNS
@given(files=FILES)
def test_any_files_come_back_as_they_were(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as top:
        data = pack(write(Path(top, "from"), {"keep": b""} | files))
        assert again(data, Path(top, "to")) == {"keep": b""} | files
        assert pack(Path(top, "to")) == data


@RUNS
@given(files=FILES, seed=st.randoms())
def test_the_order_and_time_of_writing_do_not_count(
    files: dict[str, bytes], seed: Any
) -> None:
    shuffled = list(files.items())
    seed.shuffle(shuffled)
    with tempfile.TemporaryDirectory() as top:
        one, two = Path(top, "one"), Path(top, "two")
        for root, content in ((one, files), (two, dict(shuffled))):
            root.mkdir()
            write(root, content)
        for path in two.rglob("*"):
            os.utime(path, (1e9, 1e9))
        assert pack(one) == pack(two)


@RUNS
@given(data=st.data())
def test_a_broken_archive_is_refused_and_leaves_nothing(data: st.DataObject) -> None:
    whole = pack(Path(__file__).parent)
    plain = gzip.decompress(whole)
    at = data.draw(st.integers(0, len(plain) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=600))
    broken = data.draw(
        st.sampled_from(
            [
                whole[: at % len(whole)],
                whole[: at % len(whole)] + noise,
                gzip.compress(plain[:at] + noise + plain[at + len(noise) :], 1),
                gzip.compress(noise),
                noise,
            ]
        )
    )
    with tempfile.TemporaryDirectory() as top:
        place = Path(top, "to")
        try:
            unpack(broken, place)
        except CorralError:
            assert os.listdir(top) == []
        else:
            assert os.listdir(top) == ["to"]


HEADERS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            ["a", "a/b", "../x", "/x", "a/../../x", "", ".", "l/x"]
        ),
        "type": st.sampled_from([b"0", b"1", b"2", b"3", b"5", b"6", b"S", b"7"]),
        "linkname": st.sampled_from(
            ["a", "..", "../../x", "/etc", "l/..", "", "b/../.."]
        ),
        "mode": st.integers(0, 0o7777),
        "mtime": st.sampled_from([0, -1, 2**62, 2**80]),
        "uid": st.sampled_from([0, 12345]),
    }
)


@RUNS
@given(headers=st.lists(HEADERS, min_size=1, max_size=5))
def test_no_archive_writes_or_links_outside_its_folder(
    headers: list[dict[str, Any]],
) -> None:
    data = crafted(*((member(**h), b"data") for h in headers))
    with tempfile.TemporaryDirectory() as top:
        place = Path(top, "deep", "to")
        try:
            unpack(data, place)
        except CorralError:
            assert not place.exists()
        assert os.listdir(top) in ([], ["deep"])
        assert os.listdir(place.parent) in ([], ["to"])
        for path in place.rglob("*"):
            assert Path(os.path.realpath(path)).is_relative_to(os.path.realpath(place))
            assert not path.lstat().st_mode & 0o7000


ESCAPES = {
    "parent": [plain("../x")],
    "hidden parent": [plain("a/../../x")],
    "absolute": [plain("/tmp/x")],
    "link out": [link("l", "../x")],
    "absolute link": [link("l", "/etc")],
    "write through a link": [link("l", "."), plain("l/x")],
    "link through a later link": [
        link("l", "a/b/c/../../.."),
        link("a/b/c", "../.."),
    ],
    "hard link": [(member("h", type=tarfile.LNKTYPE, linkname="a"), b"")],
    "device": [(member("d", type=tarfile.CHRTYPE), b"")],
    "pipe": [(member("p", type=tarfile.FIFOTYPE), b"")],
    "twice": [plain("a"), plain("./a")],
    "below a file": [plain("a"), plain("a/b")],
    "the folder itself": [plain(".")],
}


@pytest.mark.parametrize("members", ESCAPES.values(), ids=ESCAPES.keys())
def test_what_does_not_belong_into_an_archive_is_refused(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match="cannot be unpacked"):
        unpack(crafted(plain("first"), *members), tmp_path / "to")
    assert os.listdir(tmp_path) == []


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    large = crafted(*(plain(f"f{n}", bytes(100_000)) for n in range(5)))
    many = crafted(*(plain(f"f{n}", b"") for n in range(30)))
    limits = ArchiveLimits(size_bytes=400_000, members=20)
    for data in (large, many, gzip.compress(bytes(10_000_000))):
        with pytest.raises((TooLarge, BadRequest)):
            unpack(data, tmp_path / "to", limits=limits)
    # A header that is itself the bomb.
    header = member("h", type=tarfile.XHDTYPE, size=50_000_000)
    bomb = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(50_000_000), 1)
    with pytest.raises(TooLarge):
        unpack(bomb, tmp_path / "to", limits=limits)
    assert os.listdir(tmp_path) == []


def test_ignored_files_stay_behind(tmp_path: Path) -> None:
    text = b"*.log\n!keep.log\nbuild/\n/only-here\n# note\n"
    write(
        tmp_path,
        {
            ".gitignore": text,
            "main.py": b"",
            "a.log": b"",
            "keep.log": b"",
            "only-here": b"",
            "sub/only-here": b"",
            "build/x": b"",
            "sub/build/keep.log": b"",
            "sub/.gitignore": b"!a.log\nmine\n",
            "sub/a.log": b"",
            "sub/mine": b"",
            "mine": b"",
            ".git/config": b"",
            "sub/.git": b"gitdir: elsewhere",
            "__pycache__/main.cpython-311.pyc": b"",
        },
    )
    assert names(pack(tmp_path)) == [
        ".gitignore",
        "keep.log",
        "main.py",
        "mine",
        "sub/.gitignore",
        "sub/a.log",
        "sub/only-here",
    ]


def test_a_wrong_pattern_names_its_file(tmp_path: Path) -> None:
    write(tmp_path, {"sub/.gitignore": b"!"})
    with pytest.raises(InvalidField, match=r"sub/\.gitignore"):
        pack(tmp_path)


def test_only_the_right_to_execute_is_kept_of_a_mode(tmp_path: Path) -> None:
    root = write(tmp_path / "from", {"run": b"", "read": b""})
    before = pack(root)
    (root / "read").chmod(0o600)
    assert pack(root) == before
    (root / "run").chmod(0o700)
    assert pack(root) != before
    unpack(pack(root), tmp_path / "to")
    assert os.access(tmp_path / "to" / "run", os.X_OK)
    assert not (tmp_path / "to" / "read").stat().st_mode & 0o111


def test_links_inside_stay_links(tmp_path: Path) -> None:
    root = write(tmp_path / "from", {"a/real": b"x", "b/c/other": b"y"})
    (root / "near").symlink_to("a/real")
    (root / "b/up").symlink_to("../a")
    (root / "nowhere").symlink_to("missing")
    unpack(pack(root), tmp_path / "to")
    to = tmp_path / "to"
    assert os.readlink(to / "near") == "a/real"
    assert (to / "b/up/real").read_bytes() == b"x"
    assert os.readlink(to / "nowhere") == "missing"


@pytest.mark.parametrize("target", ["../secret", "{top}/secret", "a/../../secret"])
def test_a_link_out_of_the_folder_is_refused_by_name(
    target: str, tmp_path: Path
) -> None:
    write(tmp_path, {"secret": b"s", "from/a/x": b""})
    (tmp_path / "from/leak").symlink_to(target.format(top=tmp_path))
    with pytest.raises(InvalidField, match="leak is a link"):
        pack(tmp_path / "from")
    (tmp_path / "from/.gitignore").write_text("leak\n")
    assert names(pack(tmp_path / "from")) == [".gitignore", "a/x"]


def test_a_linked_folder_outside_is_not_walked(tmp_path: Path) -> None:
    write(tmp_path, {"outside/secret": b"s", "from/a/x": b""})
    (tmp_path / "from/b").symlink_to(tmp_path / "outside", target_is_directory=True)
    with pytest.raises(InvalidField):
        pack(tmp_path / "from")


def test_pipes_and_empty_folders_stay_behind(tmp_path: Path) -> None:
    write(tmp_path, {"x": b""})
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "empty").mkdir()
    assert names(pack(tmp_path)) == ["x"]


def test_a_folder_too_large_is_refused_before_it_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"noise": os.urandom(200_000), "small": b"x"})
    with pytest.raises(TooLarge, match=r"\.gitignore"):
        pack(tmp_path, limit_bytes=100_000)
    (tmp_path / ".gitignore").write_text("noise")
    assert len(pack(tmp_path, limit_bytes=100_000)) < 1000
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(LIMITS.size_bytes + 1)
    with pytest.raises(TooLarge):
        pack(tmp_path)


@pytest.mark.parametrize("name", ["file", "missing"])
def test_what_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"file": b""})
    with pytest.raises(InvalidField, match="is not a folder"):
        pack(tmp_path / name)


def test_names_that_are_no_text_come_back(tmp_path: Path) -> None:
    odd = os.fsdecode(b"not-utf8-\xff")
    files = {odd: b"x", "back\\slash": b"y", "x" * 150 + "/" + "y" * 150: b"z"}
    data = pack(write(tmp_path / "from", files))
    assert again(data, tmp_path / "to") == files


def test_an_empty_folder_is_filled_and_a_full_one_left_alone(tmp_path: Path) -> None:
    data = pack(write(tmp_path / "from", {"x": b"1"}))
    place = tmp_path / "to"
    place.mkdir()
    assert again(data, place) == {"x": b"1"}
    with pytest.raises(Conflict):
        unpack(data, place)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Conflict):
        unpack(data, tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["from", "link", "to"]
