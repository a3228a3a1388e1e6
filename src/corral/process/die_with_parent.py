"""Ties this process to its parent's life, then becomes the given program.

Run by path with `python -I -S -B`, so that it starts in a few milliseconds: nothing
but the standard library may be imported here. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Arguments: the parent's pid, the signal to die by, then the program's own."""
    parent, number = int(arguments[0]), int(arguments[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    # The parent may have died before prctl took hold; then no signal ever comes.
    if os.getppid() != parent:
        sys.exit(1)
    program = arguments[2:]
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
