"""`corral record` and `corral simulate`."""

from __future__ import annotations

import gzip
import importlib.util
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from corral.manager.insight.journal import RecordedScheduler
from corral.scheduler.scheduler import Policy
from corral.sim.machine import parse_fleet
from corral.sim.simulation import Simulation
from corral.sim.workload import synthetic
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

TRACE = "at_s,model,run_s,model_gb,load_s\n" + "".join(
    f"{n},m{n % 3},{5 + n % 4},8,12\n" for n in range(60)
)


@pytest.fixture(scope="module")
def journal() -> bytes:
    scheduler = RecordedScheduler(Policy(), 100_000)
    work = synthetic(1, tasks=80, models=6)
    Simulation(work, parse_fleet("2x24GB"), scheduler=scheduler).run()
    return b"".join(scheduler.journal.lines(0.0))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "trace.csv").write_text(TRACE)
    return str(tmp_path / "trace.csv")


@pytest.mark.parametrize("name", ["j.jsonl", "j.jsonl.gz"])
def test_a_journal_is_recorded_into_a_file(
    manager: StandIn, corral: Corral, journal: bytes, tmp_path: Path, name: str
) -> None:
    manager.on("GET /cluster/journal", journal)
    ran = corral("record", "--since", "2h", name)
    assert ran.code == 0
    assert ran.out == ""
    assert f"{len(journal.splitlines())} lines" in ran.err
    data = (tmp_path / name).read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data) == journal
    (asked,) = manager.asked("GET /cluster/journal")
    assert float(asked.query["since_s"]) == 7200.0
    again = corral("simulate", "--journal", name, "--check")
    assert again.out.startswith("the same decisions, bit for bit: ")


def test_nothing_is_written_when_there_is_no_journal(
    manager: StandIn, corral: Corral, tmp_path: Path
) -> None:
    manager.on("GET /cluster/journal", fault("conflict", 409, "keeps no journal"))
    ran = corral("record", "j.jsonl")
    assert ran.code != 0
    assert "keeps no journal" in ran.err
    assert not (tmp_path / "j.jsonl").exists()


def test_decisions_that_differ_are_shown_and_fail(
    corral: Corral, journal: bytes, tmp_path: Path
) -> None:
    (tmp_path / "j").write_bytes(
        journal.replace(b'"can_send":true', b'"can_send":false')
    )
    ran = corral("simulate", "--journal", "j", "--check")
    assert ran.code == 1
    assert "decided otherwise" in ran.out
    told = corral("simulate", "--journal", "j", "--check", "--json")
    assert json.loads(told.out)["is_same"] is False


def test_the_clusters_own_history_is_simulated_with_changes(
    manager: StandIn, corral: Corral, journal: bytes
) -> None:
    manager.on("GET /cluster/journal", journal)
    ran = corral("simulate", "--add", "2x24GB", "--load", "2", "--json")
    now, changed = json.loads(ran.out)
    assert (now["scenario"], changed["scenario"]) == (
        "smith",
        "smith +2 worker(s), load x2",
    )
    assert (now["workers"], changed["workers"]) == (2, 4)
    assert (now["tasks"], now["left"], now["doubled"]) == (80, 0, 0)


def test_other_workers_and_policies_can_be_tried_on_a_journal(
    corral: Corral, journal: bytes, tmp_path: Path
) -> None:
    (tmp_path / "j").write_bytes(journal)
    policies = ("--policy", "smith,least_loaded")
    ran = corral("simulate", "--journal", "j", "--workers", "1x80GB", *policies)
    lines = ran.out.splitlines()
    assert lines[0].split()[:2] == ["SCENARIO", "MEAN"]
    assert [line.split()[0] for line in lines[1:3]] == ["smith", "least_loaded"]


def test_a_trace_is_compared_under_every_policy_with_bars(
    corral: Corral, trace: str
) -> None:
    ran = corral("simulate", "--trace", trace, "--workers", "2x24GB")
    for name in ("smith", "least_loaded", "weighted_round_robin", "affinity"):
        assert sum(line.strip().startswith(name) for line in ran.out.splitlines()) == 3
    assert "█" in ran.out
    assert ran.err == ""


def test_a_synthetic_workload_with_failures_loses_nothing(corral: Corral) -> None:
    ran = corral(
        *("simulate", "--synthetic", "7", "--fail", "--policy", "smith", "--json")
    )
    (found,) = json.loads(ran.out)
    assert found["redone"] > 0
    assert (found["left"], found["doubled"]) == (0, 0)


def test_a_share_of_the_workers_can_be_filled(corral: Corral, trace: str) -> None:
    few, many = (
        json.loads(
            corral(
                *("simulate", "--trace", trace, "--workers", "2x24GB", "--json"),
                *("--policy", "smith", "--utilization", share),
            ).out
        )[0]
        for share in ("0.1", "0.9")
    )
    assert few["mean_s"] < many["mean_s"]
    assert few["utilization_pct"] < many["utilization_pct"]


def test_a_plot_is_drawn_as_svg(corral: Corral, trace: str, tmp_path: Path) -> None:
    ran = corral("simulate", "--trace", trace, "--plot", "out.svg")
    assert "drawn: out.svg" in ran.err
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    assert root.tag.endswith("svg")
    words = "".join(root.itertext())
    assert "weighted_round_robin" in words
    assert "seconds from arrival" in words


def test_a_png_needs_matplotlib_and_says_so(
    corral: Corral, trace: str, tmp_path: Path
) -> None:
    ran = corral("simulate", "--trace", trace, "--plot", "out.png")
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert ran.code == 1
        assert ran.out == ""
        assert "matplotlib" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--synthetic", "1", "--policy", "best"], "no policy 'best'"),
        (["--synthetic", "1", "--workers", "many"], "2x24GB"),
        (["--synthetic", "1", "--trace", "x"], "only one of"),
        (["--synthetic", "1", "--plot", "out.gif"], ".svg or .png"),
        (["--synthetic", "1", "--load", "0"], "--load"),
        (["--trace", "nothing.csv"], "nothing.csv"),
        (["--journal", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    corral: Corral, words: list[str], said: str
) -> None:
    ran = corral("simulate", *words)
    assert ran.code != 0
    assert said in ran.err.replace("\n", " ")
