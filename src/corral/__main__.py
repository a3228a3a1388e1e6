"""`python -m corral` is the `corral` command; nothing else happens here."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # `-m` puts the current folder first on the path. Files of that folder are the
    # user's, who may have called one `http.py`: the command imports none of them.
    if not sys.flags.safe_path:
        del sys.path[0]

    from corral.cli.main import main

    main()
