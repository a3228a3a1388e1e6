"""A worker module that cannot be imported."""

from __future__ import annotations

import a_package_nobody_has  # type: ignore[import-not-found]  # noqa: F401
