"""How many examples a property is tried with: all in CI, some while one works.

What is left out here is found there, and another run here tries others.
"""

from __future__ import annotations

import os

STRICT = os.environ.get("CORRAL_STRICT", "") not in ("", "0")
DEFAULT = 100


def examples(most: int = DEFAULT, least: int = 5) -> int:
    """For `settings(max_examples=...)` and seeds: `most` is what CI tries."""
    return most if STRICT else max(most // 5, least)
