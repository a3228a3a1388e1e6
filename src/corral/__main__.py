"""`python -m corral` is the `corral` command; nothing else happens here."""

from __future__ import annotations

from corral.cli.main import main

if __name__ == "__main__":
    main()
