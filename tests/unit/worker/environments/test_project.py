from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import EnvironmentFailed
from corral.worker.environments.project import Project, find_project

SCRIPTS = '[project]\nname = "a"\nversion = "1"\ndependencies = ["iniconfig"]\n'
PACKAGE = f'{SCRIPTS}[build-system]\nrequires = ["hatchling"]\n'
LINTER = "[tool.ruff]\nline-length = 88\n"


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def key(root: Path, sources: str) -> str:
    project = find_project(root, "")
    assert project is not None
    return project.key(sources)


def test_a_project_file_is_found_in_the_first_folder_that_has_one(
    tmp_path: Path,
) -> None:
    write(tmp_path, pyproject_toml=SCRIPTS, sub__requirements_txt="iniconfig\n")
    outer = Project(tmp_path, "", "pyproject.toml")
    inner = Project(tmp_path, "sub", "requirements.txt")
    assert find_project(tmp_path, "sub", "") == inner
    assert find_project(tmp_path, "", "sub") == outer
    assert find_project(tmp_path, "elsewhere", "") == outer
    assert find_project(tmp_path, "elsewhere") is None


def test_the_settings_of_a_linter_are_no_project(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=LINTER)
    assert find_project(tmp_path, "") is None
    write(tmp_path, requirements_txt="iniconfig\n")
    found = find_project(tmp_path, "")
    assert found is not None
    assert found.file == "requirements.txt"


def test_a_project_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml="[project\n")
    with pytest.raises(EnvironmentFailed, match=r"pyproject\.toml cannot be read") as e:
        find_project(tmp_path, "")
    assert "\n" not in e.value.message


@pytest.mark.parametrize("name", ["pyproject_toml", "requirements_txt"])
def test_commits_that_change_only_scripts_share_an_environment(
    tmp_path: Path, name: str
) -> None:
    text = SCRIPTS if name == "pyproject_toml" else "iniconfig==2.0.0\n"
    one = write(tmp_path / "one", **{name: text}, train_py="1")
    two = write(tmp_path / "two", **{name: text}, train_py="2")
    assert key(one, "commit 1") == key(two, "commit 2")


@pytest.mark.parametrize("name", ["uv_lock", "uv_toml", "pyproject_toml"])
def test_what_chooses_versions_makes_another_environment(
    tmp_path: Path, name: str
) -> None:
    one = write(tmp_path / "one", pyproject_toml=SCRIPTS)
    two = write(tmp_path / "two", pyproject_toml=SCRIPTS)
    write(two, **{name: f"{SCRIPTS}# more\n"})
    assert key(one, "same") != key(two, "same")


@pytest.mark.parametrize(
    "text",
    [
        PACKAGE,
        f"{SCRIPTS}[tool.uv]\npackage = true\n",
        f'{SCRIPTS}[tool.uv.workspace]\nmembers = ["a"]\n',
        f'{SCRIPTS}[tool.uv.sources]\na = {{ path = "a" }}\n',
        f"{SCRIPTS}[tool.uv.sources]\na = [{{ workspace = true }}]\n",
        '[project]\nname = "a"\nversion = "1"\ndependencies = ["a @ file:///a"]\n',
    ],
)
def test_a_project_made_of_its_sources_is_one_per_commit(
    tmp_path: Path, text: str
) -> None:
    write(tmp_path, pyproject_toml=text)
    assert key(tmp_path, "commit 1") != key(tmp_path, "commit 2")
    assert key(tmp_path, "commit 1") == key(tmp_path, "commit 1")


@pytest.mark.parametrize(
    "line",
    [
        "-r more.txt",
        "-e .",
        "--constraint c",
        "--find-links wheels",
        ".",
        "./lib",
        "lib/a",
        "a-1-py3-none-any.whl",
        "a @ ./lib",
    ],
)
def test_requirements_that_name_files_are_one_per_commit(
    tmp_path: Path, line: str
) -> None:
    write(tmp_path, requirements_txt=f"iniconfig\n{line}\n")
    assert key(tmp_path, "commit 1") != key(tmp_path, "commit 2")


def test_hashes_and_urls_in_requirements_name_no_files(tmp_path: Path) -> None:
    lines = (
        "--pre",
        "a==1 \\",
        "    --hash=sha256:0",
    )
    write(tmp_path, requirements_txt="\n".join((*lines, "b @ git+https://x.org/b")))
    assert key(tmp_path, "commit 1") == key(tmp_path, "commit 2")


def test_a_project_within_another_may_be_made_of_both(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=SCRIPTS, sub__pyproject_toml=SCRIPTS)
    inner = find_project(tmp_path, "sub")
    assert inner is not None
    assert inner.key("commit 1") != inner.key("commit 2")
