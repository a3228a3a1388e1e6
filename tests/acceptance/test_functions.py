"""Functions of scripts and projects on a real cluster, as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.agent.worker_option import DEFAULTS
from tests.acceptance.cluster import ROOT, Cluster, until

pytestmark = pytest.mark.timeout(240)
HEAD = "import os, sys, time, corral\n\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What a machine runs when nobody said otherwise, with two runners."""
    started = Cluster.start(tmp_path_factory.mktemp("functions"), [f"{DEFAULTS[0]}x2"])
    try:
        started.serving("function")
        yield started
    finally:
        started.stop()


def run(cluster: Cluster, script: Path, *arguments: str) -> str:
    """The script as its user starts it; what it printed."""
    environment = {
        **cluster.environment,
        "CORRAL_MANAGER_URL": cluster.url,
        "PYTHONPATH": str(ROOT / "src"),
    }
    told = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    return told.stdout


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder / "script.py"


def main_part(*lines: str) -> str:
    return "\nif __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in lines)


def test_default_worker_serves_echo_and_functions(cluster: Cluster) -> None:
    assert cluster.client.run("echo", {"message": "hi"}) == {"echoed": "hi"}
    [worker] = cluster.client.workers()
    assert worker.job_types == ["echo", "function"]


def test_the_example_says_what_it_promises(cluster: Cluster) -> None:
    assert run(cluster, ROOT / "examples" / "functions" / "main.py").splitlines() == [
        "here: 25",
        "there: 25",
        "in order: [4, 25, 168]",
        "as they come: [0, 0, 0, 1, 2, 2, 3, 3, 4, 4]",
        "failed as it should: ZeroDivisionError: division by zero",
    ]


def test_script_takes_its_neighbours_along_and_runs_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = write(
        tmp_path,
        script=HEAD
        + "from near import times\n\n@corral.task\ndef work(x):\n"
        + "    return [times(x), os.getpid()]\n"
        + main_part(
            "results = list(work.map(range(2500)))",
            "assert [r for r, _ in results] == [3 * x for x in range(2500)]",
            "print(len(results), os.getpid() in {pid for _, pid in results})",
        ),
        near="def times(x):\n    return 3 * x\n",
    )
    assert run(cluster, script) == "2500 False\n"


def test_two_versions_of_one_project_answer_each_for_itself(
    cluster: Cluster, tmp_path: Path
) -> None:
    body = HEAD + "import part\n\n@corral.task\ndef work(x):\n    return part.NAME\n"
    body += main_part("print(*work.map(range(20)))")
    for name in ("old", "new"):
        write(tmp_path / name, script=body, part=f"NAME = {name!r}\n")
    for name in ("old", "new", "old", "new"):
        told = run(cluster, tmp_path / name / "script.py").split()
        assert told == [name] * 20
    # Edited in place, it is another version too.
    write(tmp_path / "old", part="NAME = 'edited'\n")
    assert set(run(cluster, tmp_path / "old" / "script.py").split()) == {"edited"}


def test_failures_timeouts_and_retries_are_told_by_type(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = write(
        tmp_path,
        script=HEAD
        + "@corral.task\ndef bad(x):\n    return {}[x]\n\n"
        + "@corral.task(timeout=0.3)\ndef slow():\n    time.sleep(60)\n\n"
        + "@corral.task(retries=3)\ndef moody(note):\n"
        + "    with open(note, 'a') as file:\n        file.write('x')\n"
        + "    if os.path.getsize(note) < 3:\n        raise OSError('not yet')\n"
        + "    return os.path.getsize(note)\n\n"
        + "@corral.task\ndef odd():\n    return object()\n\n"
        + "def fate(handle):\n    try:\n        return handle.result(60)\n"
        + "    except corral.errors.TaskFailed as failed:\n"
        + "        return failed\n"
        + main_part(
            "one = fate(bad.submit('key'))",
            "print(one.kind, one.task.error.message, 'return {}[x]' in one.traceback)",
            "print(fate(slow.submit()).kind)",
            "print(fate(odd.submit()).kind)",
            "print(fate(moody.submit('note')))",
        ),
    )
    assert run(cluster, script).splitlines() == [
        "exception KeyError: 'key' True",
        "timeout",
        "bad_result",
        "3",
    ]


def test_cancel_stops_a_running_function(cluster: Cluster, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        script=HEAD
        + "@corral.task\ndef forever():\n    corral.progress(3, 4, 'almost')\n"
        + "    time.sleep(600)\n"
        + main_part("print(forever.submit().task_id)"),
    )
    task_id = run(cluster, script).strip()
    client = cluster.client
    seen: Any = until("its progress", lambda: client.get_task(task_id).progress)
    assert (seen.fraction, seen.message) == (0.75, "almost")
    client.cancel(task_id)
    assert client.wait(task_id, timeout=60).status == "cancelled"
    assert client.get_task(task_id).labels["function"] == "__main__.forever"


def test_projects_dependencies_are_installed_for_its_functions_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "needy"\nversion = "1"\ndependencies = ["iniconfig"]\n'
    )
    script = write(
        tmp_path / "code",
        script=HEAD
        + "@corral.task\ndef where():\n    import iniconfig\n    try:\n"
        + "        import httpx\n    except ImportError:\n        httpx = None\n"
        + "    return [iniconfig.__file__, httpx is None]\n"
        + main_part("print(*where.submit().result(150))"),
    )
    place, is_alone = run(cluster, script).split()
    assert Path(place).is_relative_to(cluster.home)
    assert is_alone == "True"


def test_node_keeps_the_code_and_fetches_it_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    body = HEAD + "@corral.task\ndef work(x):\n    return x\n"
    script = write(tmp_path, script=body + main_part("print(*work.map(range(8)))"))
    counters = cluster.home / "agents" / "local" / "cache" / "counters.json"
    run(cluster, script)
    before = counters.read_text()
    run(cluster, script)
    assert counters.read_text() == before
