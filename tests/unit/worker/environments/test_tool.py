from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from corral.errors import EnvironmentFailed
from corral.worker.environments import tool
from tests.acceptance.cluster import until


def run(folder: Path, code: str, timeout_s: float = 30.0, hidden: str = "-") -> str:
    return tool.run(
        [sys.executable, "-c", code],
        variables=tool.environment(),
        folder=folder,
        timeout_s=timeout_s,
        what="the step",
        hidden=(hidden,),
    )


def test_the_output_of_a_tool_is_returned(tmp_path: Path) -> None:
    assert run(tmp_path, "import os; print(os.getcwd())").strip() == str(tmp_path)


def test_a_failure_is_one_line_with_the_output_beside_it(tmp_path: Path) -> None:
    code = "import sys; print('more'); sys.exit('fatal: no such thing\\nand so on')"
    with pytest.raises(EnvironmentFailed) as caught:
        run(tmp_path, code)
    assert caught.value.message == "the step failed: no such thing"
    assert caught.value.output == "fatal: no such thing\nand so on\nmore\n"


def test_a_silent_failure_says_how_it_ended(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="the step failed: exited with code 3"):
        run(tmp_path, "raise SystemExit(3)")


def test_a_tool_that_is_killed_is_not_told_by_what_it_said_last(tmp_path: Path) -> None:
    code = "import os; os.write(2, b'Building x\\n'); os.kill(os.getpid(), 9)"
    with pytest.raises(EnvironmentFailed, match="the step was killed by signal 9"):
        run(tmp_path, code)


def test_a_tool_that_takes_too_long_ends_with_all_it_started(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="took longer than 2 s") as caught:
        tool.run(
            ["sh", "-c", "sleep 600 & echo $! >&2; wait"],
            variables=tool.environment(),
            folder=tmp_path,
            timeout_s=2.0,
            what="the step",
        )
    child = int(caught.value.output)
    until("the child is gone", lambda: _is_gone(child))


def _is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_what_is_hidden_is_never_repeated(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        run(tmp_path, "raise SystemExit('fatal: s3cret is wrong')", hidden="s3cret")
    assert caught.value.message == "the step failed: *** is wrong"
    assert "s3cret" not in caught.value.output


def test_a_full_disk_is_called_so(tmp_path: Path) -> None:
    said = "error: cannot extract\\nhint: x: No space left on device"
    with pytest.raises(EnvironmentFailed) as caught:
        run(tmp_path, f"raise SystemExit('{said}')")
    full = "the step failed: cannot extract (the disk is full)"
    assert caught.value.message == full


def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        run(tmp_path, "import sys; sys.exit('x' * 1_000_000 + '\\nerror: end')")
    assert caught.value.message == "the step failed: end"
    assert len(caught.value.output) <= 2 * tool.TAIL_BYTES


def test_tools_get_the_way_to_the_network_and_none_of_our_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", "/certificates")
    monkeypatch.setenv("CORRAL_API_KEY", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    given = tool.environment()
    assert given["https_proxy"] == "http://127.0.0.1:1"
    assert given["SSL_CERT_FILE"] == "/certificates"
    assert given["PATH"] == os.environ["PATH"]
    assert not given.keys() & {"CORRAL_API_KEY", "AWS_SECRET_ACCESS_KEY", "GIT_DIR"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", ""),
        ("one\ntwo\n", "two"),
        (
            "fatal: 'x' is no repository\nfatal: Could not read from remote.",
            "'x' is no repository",
        ),
        ("warning: w\nerror: first\n  cause: second\n", "first: second"),
        ("  × No solution:\n  ╰─▶ Because of that\n", "No solution: Because of that"),
        ("error: a\x1b[31mb", "a?[31mb"),
    ],
)
def test_the_reason_is_the_line_that_says_why(said: str, why: str) -> None:
    assert tool.reason(said) == why
