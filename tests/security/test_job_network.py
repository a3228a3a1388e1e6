"""What a job reaches of the machine it runs on, and of the cloud around it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from corral.worker.isolation.network import (
    Network,
    NetworkPolicy,
    missing,
    rules,
)
from tests.acceptance.cluster import ROOT, clean_environment
from tests.security.lonely_host import HERE, METADATA

# A place that any user may enter, and a device that any user may open, for who runs
# this in a mount namespace of its own.
OPEN_TO_ALL = """
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/base /run/venv /run/tree /run/home
mount --bind "$BASE" /run/base
mount --bind "$VENV" /run/venv
mount --bind "$TREE" /run/tree
mknod /run/tun c 10 200
chmod 666 /run/tun
mount --bind /run/tun /dev/net/tun
ip link set lo up
for address in "$@"; do ip address add "$address/32" dev lo; done
chown 1000:1000 /run/home
export HOME=/run/home TMPDIR=/run/home
export PYTHONPATH=/run/tree/src:/run/tree:$(echo /run/venv/lib/python*/site-packages)
exec setpriv --reuid 1000 --regid 1000 --clear-groups \\
    /run/base/bin/python3 -m tests.security.lonely_host
"""
AS_ROOT = """
set -e
ip link set lo up
for address in "$@"; do ip address add "$address/32" dev lo; done
exec "$VENV/bin/python" -m tests.security.lonely_host
"""


@pytest.mark.parametrize("how", [AS_ROOT, OPEN_TO_ALL], ids=["root", "ordinary"])
def test_h7_a_job_reaches_neither_the_clouds_metadata_nor_its_machine(how: str) -> None:
    if missing():
        # No tunnels here: then a job has no network at all, and says so.
        assert NetworkPolicy().choose(Network.OWN) is Network.NONE
        return
    places = {"BASE": sys.base_prefix, "VENV": sys.prefix, "TREE": str(ROOT)}
    apart = ["unshare", "--net", "--mount", "sh", "-c", how, "sh", METADATA, HERE]
    done = subprocess.run(
        apart,
        env=clean_environment(**places),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    found = {kind: json.loads(told) for kind, _, told in lines}
    # With the machine's own network it does: so the others could have.
    assert found["host"] == [METADATA, HERE, "127.0.0.1"]
    assert (found["own"], found["none"]) == ([], [])


def test_h7_only_the_port_of_the_manager_is_left_open() -> None:
    told = rules("https://203.0.113.5", ["198.51.100.7", "2001:db8::1"]).splitlines()
    opened = told.index("  ip daddr 203.0.113.5 tcp dport 443 accept")
    assert opened < told.index("  ip daddr 203.0.113.5 reject")
    assert "  ip daddr 198.51.100.7 reject" in told
    assert "  ip6 daddr 2001:db8::1 reject" in told
    assert "  ip daddr 169.254.0.0/16 reject" in told
