"""Arrays and sweeps: which tasks are made of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.client import array
from corral.core.tasks.script import read_script
from corral.errors import InvalidField


def tasks(
    rows: list[array.ArrayRow],
    parameters: Any = None,
    task_type: str = "echo",
    is_sweep: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    return array.make_tasks(
        "a-1", task_type, parameters, rows, options, is_sweep=is_sweep
    )


def parameters(path: Path, value: Any = None, **more: Any) -> list[Any]:
    made = tasks(array.read_sweep(path), value, is_sweep=True, **more)
    return [task["parameters"] for task in made]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("0-9:4", [0, 4, 8]),
        ("7", [7]),
        ("1,4,8-9", [1, 4, 8, 9]),
    ],
)
def test_a_range_is_read_as_it_is_written(text: str, numbers: list[int]) -> None:
    assert [row.index for row in array.read_range(text)] == numbers


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no range"),
        ("a-b", "no range"),
        ("-1-3", "no range"),
        ("3-1", "no numbers"),
        ("0-9:0", "no numbers"),
        ("0-3,2", "twice"),
        ("0-200000", "at most"),
        ("0-9%2", "no range"),
    ],
)
def test_what_is_no_range_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidField, match=why) as refusal:
        array.read_range(text)
    assert refusal.value.field == "array"


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-9", ("0-9", None)), ("0-9%3", ("0-9", 3)), ("1,4 % 1", ("1,4 ", 1))],
)
def test_a_range_may_say_how_many_run_at_once(
    text: str, found: tuple[str, int | None]
) -> None:
    assert array.read_limit(text) == found


@pytest.mark.parametrize("text", ["0-9%", "0-9%0", "0-9%x", "0-9%-1", "0-9%2%3"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="no limit"):
        array.read_limit(text)


def test_each_task_knows_its_number() -> None:
    value = {
        "n": "{index}",
        "text": "part {index} of {all}",
        "deep": [{"x": "{index}"}],
    }
    made = tasks(array.read_range("4-5"), value, labels={"team": "blue"}, priority=3)
    assert made[1] == {
        "task_type": "echo",
        "parameters": {"n": 5, "text": "part 5 of {all}", "deep": [{"x": 5}]},
        "labels": {"team": "blue", "array": "a-1", "array.index": "5"},
        "priority": 3,
        "idempotency_key": "a-1:5",
    }
    assert tasks(array.read_range("0"))[0]["parameters"] == {}


def test_a_script_learns_its_place_from_variables_and_keeps_its_braces() -> None:
    script = {"command": ["awk", "{index}"], "variables": {"A": "{index}"}}
    (made,) = tasks(array.read_range("7"), script, "run_script")
    payload = made["parameters"]
    assert payload["command"] == ["awk", "{index}"]
    assert payload["variables"] == {
        "A": "{index}",
        "CORRAL_ARRAY_ID": "a-1",
        "CORRAL_ARRAY_INDEX": "7",
        "CORRAL_ARRAY_COUNT": "1",
    }
    assert read_script(payload).variables == payload["variables"]


def test_a_csv_file_is_a_task_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", '\ufefflr,name\n0.10,007\n1e-3,"a,b"\n\n5,x\n')
    assert parameters(path) == [
        {"lr": 0.1, "name": "007"},
        {"lr": 0.001, "name": "a,b"},
        {"lr": 5, "name": "x"},
    ]
    assert parameters(path, {"rate": "{lr}", "out": "{name}-{lr}-{index}"}) == [
        {"rate": 0.1, "out": "007-0.10-0"},
        {"rate": 0.001, "out": "a,b-1e-3-1"},
        {"rate": 5, "out": "x-5-2"},
    ]


def test_a_script_has_the_columns_filled_in_as_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", "lr\n0.10\n")
    script = {"command": ["train", "--lr", "{lr}", "{other}"]}
    (made,) = parameters(path, script, task_type="run_script")
    assert made["command"] == ["train", "--lr", "0.10", "{other}"]
    assert made["variables"]["CORRAL_ARRAY_INDEX"] == "0"


def test_lists_of_a_yaml_map_make_a_grid(tmp_path: Path) -> None:
    path = write(tmp_path, "p.yaml", "lr: [0.1, 0.2]\nseed: [1, 2]\nbig: true\n")
    assert parameters(path) == [
        {"lr": 0.1, "seed": 1, "big": True},
        {"lr": 0.1, "seed": 2, "big": True},
        {"lr": 0.2, "seed": 1, "big": True},
        {"lr": 0.2, "seed": 2, "big": True},
    ]
    assert parameters(path, {"text": "{big}"})[0] == {"text": True}
    assert parameters(path, {"text": "is {big}"})[0] == {"text": "is true"}


def test_a_yaml_list_is_a_task_a_map(tmp_path: Path) -> None:
    path = write(tmp_path, "p.yml", "- {a: 1, b: x}\n- {a: null, b: y}\n")
    assert parameters(path) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("p.csv", "", "no rows"),
        ("p.csv", "a,b\n", "no rows"),
        ("p.csv", "a,b\n1\n", "line 2 has 1 fields"),
        ("p.csv", "a,a\n1,2\n", "same name"),
        ("p.csv", "index\n1\n", "'index' is no name"),
        ("p.csv", "a b\n1\n", "no name of a column"),
        ("p.yaml", "", "neither"),
        ("p.yaml", "a: [", "no YAML"),
        ("p.yaml", "- 1", "neither"),
        ("p.yaml", "a: {b: 1}", "no text, number"),
        ("p.yaml", "a: []", "no rows"),
        ("p.yaml", "\n".join(f"x{n}: [0,1,2,3,4,5,6,7,8,9]" for n in range(9)), "most"),
    ],
)
def test_a_file_that_cannot_be_read_so_is_refused(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    with pytest.raises(InvalidField, match=why):
        array.read_sweep(write(tmp_path, name, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(b"a\n\xff\xfe\n")
    with pytest.raises(InvalidField, match="UTF-8"):
        array.read_sweep(path)
