"""Scripts from Git, a folder and an image, on a real cluster: run, watched, stopped."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.client import TaskDetail
from corral.errors import TaskFailed
from corral.worker.environments.cache import Cache
from tests.acceptance.cluster import CORRAL, Cluster, until
from tests.containers import SHELL, engine, podman_files, python_image, settings

__all__ = ["engine", "podman_files", "python_image", "settings"]
pytestmark = pytest.mark.timeout(240)

WORKER = "corral.worker.script.worker:RunScriptWorker=run_script"
TRAIN = """\
import sys, time
for epoch in range(int(sys.argv[sys.argv.index("--epochs") + 1])):
    print("epoch", epoch)
    time.sleep(0.3)
sys.exit(7)
"""
# A shell with two children, one of which double-forks and leaves the session.
FAMILY = (
    "sleep 98761 & (setsid sh -c 'sleep 98762 & exec sleep 98763' &) ; "
    "echo up; sleep 98764"
)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(TRAIN)
    (folder / "requirements.txt").write_text("iniconfig\n")
    (folder / "uses.py").write_text("import iniconfig; print(iniconfig.__name__)\n")
    git(folder, "init", "-qb", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture(scope="module")
def cluster(
    podman_files: Path, engine: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    started = Cluster.start(
        tmp_path_factory.mktemp("scripts"),
        [f"{WORKER}x2"],
        CORRAL_GIT_ALLOW_FILE="true",
        CONTAINERS_CONF=str(podman_files / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(podman_files / "storage.conf"),
    )
    try:
        started.serving("run_script")
        yield started
    finally:
        started.stop()


def run(cluster: Cluster, command: Any, **payload: Any) -> TaskDetail:
    """A script's task, ended."""
    submitted = cluster.client.submit("run_script", {"command": command, **payload})
    return cluster.client.wait(submitted, 120)


def from_git(project: Path, **more: Any) -> dict[str, Any]:
    return {"git": {"repo_url": f"file://{project}", "branch": "main", **more}}


def alive(*needles: str) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if any(needle in line for needle in needles):
            found.append(line)
    return found


def left_over(cluster: Cluster) -> list[Path]:
    """Working folders of jobs; those of none should be there."""
    return list(cluster.home.glob("agents/*/cache/work/*"))


@pytest.mark.spec("E13")
def test_a_command_in_a_repository_prints_as_it_goes_and_exits_as_the_script_does(
    cluster: Cluster, project: Path
) -> None:
    command = ["run", "--git", str(project), "--branch", "main", "--"]
    command += ["python", "train.py", "--epochs", "3"]
    with subprocess.Popen(
        [*CORRAL, *command],
        env={**cluster.environment, "CORRAL_MANAGER_URL": cluster.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "epoch 0\n"
        assert running.poll() is None, "the first line came after the end"
        out, err = running.communicate(timeout=60)
    assert out == "epoch 1\nepoch 2\n"
    assert running.returncode == 7
    assert err.startswith("Error: the script ended with exit code 7")


def test_a_folder_is_sent_and_run_as_it_is(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("secret.txt\n")
    (tmp_path / "secret.txt").write_text("not for others")
    (tmp_path / "here.py").write_text("import os; print(sorted(os.listdir()))\n")
    done = cluster.corral("run", "--dir", str(tmp_path), "--", "python", "here.py")
    assert (done.code, done.out) == (0, "['.gitignore', 'here.py']\n"), done.err


@pytest.mark.spec("E14")
def test_a_command_runs_in_a_container(cluster: Cluster) -> None:
    words = ["sh", "-c", "echo inside; cat /bin/busybox | wc -c; exit 4"]
    done = cluster.corral("run", "--image", SHELL, "--", *words)
    assert done.code == 4
    assert done.out.startswith("inside\n")


def test_a_projects_dependencies_are_there(cluster: Cluster, project: Path) -> None:
    task = run(cluster, "python uses.py", environment=from_git(project))
    assert task.result["stdout"] == "iniconfig\n"
    assert task.result["commit"] == git(project, "rev-parse", "HEAD")
    assert task.result["isolation"] == "sandbox"


@pytest.mark.spec("E15")
def test_every_job_has_a_fresh_folder_that_is_gone_afterwards(
    cluster: Cluster, project: Path
) -> None:
    where = from_git(project)
    script = ["sh", "-c", "ls; pwd; touch mine; chmod 000 train.py"]
    first = run(cluster, script, environment=where)
    second = run(cluster, script, environment=where)
    listed, folder = first.result["stdout"].rstrip().rsplit("\n", 1)
    assert "mine" not in listed.split()
    assert second.result["stdout"].startswith(listed)
    assert not second.result["stdout"].endswith(f"{folder}\n")
    until("the folders are gone", lambda: not left_over(cluster))


@pytest.mark.parametrize("kind", ["git", "archive", "docker"])
def test_cancel_leaves_no_process_of_a_job(
    cluster: Cluster, project: Path, kind: str
) -> None:
    where = from_git(project)
    if kind == "archive":
        where = {"archive": {"digest": cluster.client.upload(project)}}
    elif kind == "docker":
        where = {"docker": {"image": SHELL}}
    payload = {"command": ["sh", "-c", FAMILY], "environment": where, "grace_s": 1}
    task = cluster.client.submit("run_script", payload)
    needles = [f"sleep {number}" for number in (98761, 98762, 98763, 98764)]
    until("the family runs", lambda: len(alive(*needles)) >= 4, 60)
    cluster.client.cancel(task)
    until("no process of the job is left", lambda: not alive(*needles))
    assert cluster.client.wait(task, 60).status == "cancelled"


def test_a_script_out_of_time_may_clean_up(cluster: Cluster) -> None:
    script = "trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    task = cluster.client.submit(
        "run_script", {"command": ["sh", "-c", script]}, timeout=1
    )
    ended = cluster.client.wait(task, 60)
    assert ended.status == "timed_out"
    assert ended.result["stdout"] == "up\ncleaned\n"


def test_fifty_jobs_on_one_commit_clone_and_build_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("iniconfig\n# fifty\n")
    (tmp_path / "one.py").write_text("import iniconfig; print('ok')\n")
    git(tmp_path, "init", "-qb", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    [folder] = cluster.home.glob("agents/*/cache")
    cache = Cache(folder, 1 << 40)
    before = cache.counters()
    payload = {"command": "python one.py", "environment": from_git(tmp_path)}
    task = {"task_type": "run_script", "parameters": payload}
    ids = cluster.client.submit_many([task] * 50)
    ended = cluster.client.wait_many(ids, 120)
    assert {task.status for task in ended} == {"completed"}
    after = cache.counters()
    for name in ("clones", "builds"):
        assert after[name] - before.get(name, 0) == 1, (name, before, after)


@pytest.mark.spec("C67")
@pytest.mark.parametrize(
    ("attempt", "script"),
    [
        ("another job's folder", "cat {other}"),
        ("the agent's key", "cat {home}/agents/*/*key* {home}/agents/*/*.json"),
        ("the admin key", "cat {home}/admin.key"),
        ("the agent's environment", "cat /proc/{agent}/environ"),
        ("the agent's memory", "head -c 16 /proc/{agent}/mem"),
    ],
)
def test_a_job_in_the_sandbox_cannot_reach(
    cluster: Cluster, tmp_path: Path, attempt: str, script: str
) -> None:
    held = cluster.client.submit(
        "run_script", {"command": ["sh", "-c", "echo private > own; pwd; sleep 20"]}
    )
    other = until(
        "the other job runs",
        lambda: [line.text for line in cluster.client.logs(held)],
        30,
    )[0]
    text = script.format(
        other=f"{other}/own", home=cluster.home, agent=cluster.pid("agent")
    )
    task = run(cluster, ["sh", "-c", f"{text} || exit 9"])
    cluster.client.cancel(held)
    assert task.result["isolation"] == "sandbox"
    assert (task.status, task.result["exit_code"]) == ("failed", 9), task.result
    assert task.result["stdout"] == ""


@pytest.mark.spec("C67")
@pytest.mark.parametrize(
    ("kind", "hungry"),
    [
        ("sandbox", ["python", "-c", "print(len(b'x' * 400_000_000))"]),
        ("container", ["sh", "-c", "tail -c 400000000 /dev/zero"]),
    ],
)
def test_a_job_that_uses_more_memory_than_its_limit_fails(
    cluster: Cluster, kind: str, hungry: list[str]
) -> None:
    payload: dict[str, Any] = {"limits": {"memory_mb": 64}}
    if kind == "container":
        payload["environment"] = {"docker": {"image": SHELL}}
    task = run(cluster, hungry, **payload)
    fine = run(cluster, ["sh", "-c", "echo fine"], **payload)
    assert fine.result["isolation"] == kind
    assert task.status == "failed", task.result
    assert task.error is not None
    assert "memory" in task.error.message


BAD = {
    "no repository": ({"git": {"repo_url": "file:///nowhere/at/all"}}, "true"),
    "no branch": ({"git": {"repo_url": "file://{p}", "branch": "nope"}}, "true"),
    "no commit": ({"git": {"repo_url": "file://{p}", "commit": "0" * 40}}, "true"),
    "no folder": ({"git": {"repo_url": "file://{p}", "working_dir": "no"}}, "true"),
    "no image": ({"docker": {"image": "localhost/nope:1"}}, "true"),
    "no command": ({"git": {"repo_url": "file://{p}"}}, "not-a-command"),
    "no command inside": ({"docker": {"image": SHELL}}, "not-a-command"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_run_fails_with_one_line_and_leaves_nothing(
    cluster: Cluster, project: Path, case: str
) -> None:
    where, command = BAD[case]
    [(kind, fields)] = where.items()
    filled = {
        name: value.format(p=project) if isinstance(value, str) else value
        for name, value in fields.items()
    }
    task = run(cluster, command, environment={kind: filled})
    assert task.status == "failed"
    assert task.error is not None
    assert task.error.message
    assert "\n" not in task.error.message
    assert not task.error.traceback
    until("nothing is left", lambda: not left_over(cluster))


def test_requirements_that_cannot_be_had_show_what_the_tool_said(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("iniconfig==0.0.0.1\n")
    git(tmp_path, "init", "-qb", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    task = run(cluster, "true", environment=from_git(tmp_path))
    assert task.status == "failed"
    assert "iniconfig" in task.result["output"]
    until("nothing is left", lambda: not left_over(cluster))


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"command": ""},
        {"command": 5},
        {"command": "'unclosed"},
        {"command": "x", "environment": {"git": {"repo_url": "ext::sh -c id"}}},
        {"command": "x", "environment": {"git": {"repo_url": "--upload-pack=id"}}},
        {"command": "x", "variables": {"CORRAL_TASK_ID": "mine"}},
        {"command": "x", "limits": {"memory_mb": -1}},
        {"command": "x", "unknown": 1},
    ],
)
def test_a_script_that_makes_no_sense_is_refused_at_submit(
    cluster: Cluster, payload: dict[str, Any]
) -> None:
    from corral.errors import InvalidField

    with pytest.raises(InvalidField):
        cluster.client.submit("run_script", payload)


def test_progress_lines_are_progress_and_not_log(cluster: Cluster) -> None:
    script = "echo ::progress 30/100 half way; echo seen; sleep 3"
    task = cluster.client.submit("run_script", {"command": ["sh", "-c", script]})

    def progress() -> Any:
        found = cluster.client.get_task(task).progress
        return found if found and found.fraction else None

    found = until("progress is told", progress)
    assert (found.fraction, found.message) == (0.3, "half way")
    ended = cluster.client.wait(task, 60)
    assert ended.result["stdout"] == "seen\n"


def test_jobs_side_by_side_do_not_wait_for_each_other(cluster: Cluster) -> None:
    with ThreadPoolExecutor(2) as pool:
        barrier = threading.Barrier(2)

        def nap(_: int) -> str:
            barrier.wait(60)
            return run(cluster, ["sleep", "1"]).status

        began = time.monotonic()
        assert list(pool.map(nap, range(2))) == ["completed"] * 2
    assert time.monotonic() - began < 8


def test_a_failed_script_is_told_as_an_exception_with_its_reason(
    cluster: Cluster,
) -> None:
    with pytest.raises(TaskFailed, match="exit code 3"):
        cluster.client.run("run_script", {"command": ["sh", "-c", "exit 3"]})
