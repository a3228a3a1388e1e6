"""`corral doctor` on machines where something is wrong, and on one that is well."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.embedded.folder import Folder
from corral.embedded.redis import open_redis
from corral.embedded.server import running
from tests.acceptance.cluster import (
    CORRAL,
    ECHO,
    Cluster,
    Run,
    clean_environment,
    free_port,
)
from tests.unit.client.stand_in import serve

SIMULATED = "1x8GB"
FULL = """\
mount -t tmpfs -o size=4m none "$1" && head -c 3900000 /dev/zero > "$1/file" || exit 9
shift; exec "$@"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("doctor")
    started = Cluster.start(home, [ECHO], CORRAL_SIMULATED_GPUS=SIMULATED)
    try:
        yield started
    finally:
        started.stop()


def doctor(home: Path, *prefix: str, **settings: str) -> Run:
    """`corral doctor` where no cluster runs; with a GPU unless told otherwise."""
    told = {
        "CORRAL_HOME": str(home),
        "CORRAL_PORT": str(free_port()),
        "CORRAL_SIMULATED_GPUS": SIMULATED,
        **settings,
    }
    done = subprocess.run(
        [*prefix, *CORRAL, "doctor"],
        env=clean_environment(**told),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def only_problem(ran: Run) -> str:
    """The one line that tells of a problem."""
    assert ran.code == 1, ran
    assert "Traceback" not in ran.out + ran.err
    (line,) = [line for line in ran.out.splitlines() if line.startswith("problem")]
    assert " -> " in line
    assert "1 problem" in ran.err
    return line


@pytest.mark.spec("A15", "B21", "B19")
def test_a_cluster_that_is_well_has_no_problem(cluster: Cluster) -> None:
    ran = cluster.corral("doctor", "--json")
    assert ran.code == 0, ran
    told = json.loads(ran.out)
    assert told["problems"] == 0
    well = {line["name"]: line["found"] for line in told["checks"] if not line["fix"]}
    assert {"home", "database", "redis", "manager", "clock", "disk"} <= set(well)
    assert "Simulated GPU 8 GB" in well["gpu"]
    assert "8192 MiB, 0 used, 8192 free" in well["gpu"]


@pytest.mark.spec("A15", "B21")
def test_a_database_that_is_down_is_one_line(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}/corral"
    # And no GPU is no problem where none is wanted.
    settings = {"CORRAL_SIMULATED_GPUS": "", "CORRAL_GPU_DEVICES": "none"}
    url = f"postgresql://u:secret@{place}"
    ran = doctor(tmp_path, CORRAL_DATABASE_URL=url, **settings)
    line = only_problem(ran)
    assert f"nothing listens at {place}" in line
    assert "CORRAL_DATABASE_URL" in line
    assert "secret" not in ran.out


@pytest.mark.spec("A15", "B21")
def test_a_redis_that_is_none_or_refuses_is_one_line(tmp_path: Path) -> None:
    with serve() as web:
        place = web.url.removeprefix("http://")
        ran = doctor(tmp_path, CORRAL_REDIS_URL=f"redis://{place}/0")
    assert f"what answers at {place}/0 is not Redis" in only_problem(ran)
    folder = Folder(tmp_path / "redis")
    folder.make()
    server = open_redis(folder, tcp=True)
    with running(server, tmp_path / "redis.log"):
        wrong = server.url.replace(server.password, "guess")
        ran = doctor(tmp_path / "home", CORRAL_REDIS_URL=wrong)
    assert "refuses the user or the password" in only_problem(ran)
    assert "guess" not in ran.out


@pytest.mark.spec("A15")
def test_no_gpu_is_one_line_that_says_how_to_want_none(tmp_path: Path) -> None:
    line = only_problem(doctor(tmp_path, CORRAL_SIMULATED_GPUS=""))
    assert "CORRAL_GPU_DEVICES=none" in line


@pytest.mark.spec("A15")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ran = doctor(home, "unshare", "-m", "sh", "-c", FULL, "sh", str(home))
    line = only_problem(ran)
    assert f"{home} (home, data" in line
    assert "full" in line


@pytest.mark.spec("A14", "A24", "B19")
def test_status_shows_each_node_live_and_outlives_a_restart(cluster: Cluster) -> None:
    head, row = cluster.corral("status").out.splitlines()[-2:]
    assert head.split()[:6] == ["NODE", "TYPE", "STATUS", "CPU", "MEMORY", "DISK"]
    assert row.split()[:3] == ["local", "master", "online"]
    assert row.count("%") == 3
    assert "1 simulated" in row
    assert row.endswith(" ago")
    watching = subprocess.Popen(
        [*CORRAL, "--url", cluster.url, "status", "--watch", "0.2"],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert watching.stderr is not None
    with watching, watching.stdout as pictures, watching.stderr as words:
        assert next(pictures).startswith("status")
        cluster.kill("manager")
        assert next(words) == f"cannot reach Corral at {cluster.url}\n"
        # Two more have begun: those after what was on its way at the kill.
        later = (line for line in pictures if line.startswith("status"))
        next(later), next(later)
        watching.send_signal(signal.SIGINT)
        pictures.read(), words.read()
    assert watching.returncode == 130


@pytest.mark.spec("A15")
def test_broken_data_of_a_cluster_at_rest_are_one_line(cluster: Cluster) -> None:
    cluster.stop()
    control = cluster.home / "postgres" / "data" / "global" / "pg_control"
    control.write_bytes(bytes(len(control.read_bytes())))
    line = only_problem(doctor(cluster.home))
    assert "the data in" in line
    assert "cannot be used" in line


def test_doors_that_were_opened_are_named(tmp_path: Path) -> None:
    opened = {
        "CORRAL_HOST": "0.0.0.0",
        "CORRAL_ALLOW_PLAINTEXT": "1",
        "CORRAL_ISOLATION": "process",
    }
    told = doctor(tmp_path, **opened).out
    assert "plain text to 0.0.0.0" in told
    assert "without a sandbox (CORRAL_ISOLATION)" in told
    assert "plain text" not in doctor(tmp_path).out
