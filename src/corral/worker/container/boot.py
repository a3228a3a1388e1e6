"""First code of a runner in a container: finds what it needs there, or says what not.

Run as a script by whatever Python an image has, so it imports nothing of ours before
it knows that it can. Its last line on stderr is the reason when it fails.
"""

from __future__ import annotations

import importlib.util
import sys

UNFIT = 4
"""Exit code: this image cannot hold a runner."""
LIBRARY = "/corral/lib"
BINARY = "/corral/bin"
OLDEST = (3, 11)


def _refuse(why: str) -> None:
    sys.stderr.write(why + "\n")
    sys.exit(UNFIT)


def main(found: tuple[int, ...] = sys.version_info[:2]) -> None:
    version = ".".join(str(part) for part in found)
    if found < OLDEST:  # not ours: whatever the image has
        _refuse("its Python is " + version + ": install Python 3.11 or newer in it")
    # In the place of this script's own folder, whose modules have common names.
    sys.path[0] = LIBRARY
    if importlib.util.find_spec("msgspec") is None:
        # Ours fits where the Python is of the same kind; last, so it hides nothing.
        sys.path.append(BINARY)
        try:
            importlib.import_module("msgspec")
        except ImportError as error:
            _refuse(
                f"its Python {version} has no msgspec and cannot use ours ({error}): "
                "`pip install msgspec` in it"
            )
    importlib.import_module("corral.worker.runner.main").main()


if __name__ == "__main__":
    main()
