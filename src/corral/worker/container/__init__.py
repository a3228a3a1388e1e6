"""Runs commands and runners in containers of Docker or Podman, through one API.

Nothing here knows tasks or the manager; only `engine` and below speak to an engine.
"""
