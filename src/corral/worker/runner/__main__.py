"""`python -m corral.worker.runner`: what nodes start that were not upgraded yet."""

from corral.worker.runner.main import main

if __name__ == "__main__":
    main()
