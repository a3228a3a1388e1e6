"""What every bench leaves behind: its figures in `results/`, and how they came."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


def write(target: str, figures: Mapping[str, float], packages: Sequence[str]) -> Path:
    """Write `results/<target>.json`; where it is, seen from the root."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{target}.json"
    told = {
        "target": target,
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "figures": {key: round(value, 4) for key, value in figures.items()},
    }
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return path.relative_to(ROOT)


def _commit() -> str:
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
