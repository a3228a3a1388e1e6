"""`python -m corral.worker.supervisor`: what nodes start that were not upgraded yet."""

from corral.worker.supervisor.main import main

if __name__ == "__main__":
    main()
