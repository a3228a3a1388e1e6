"""Starts a real PostgreSQL and a real Redis in one data folder, nothing installed.

This room makes folders, configuration and command lines; it keeps no process alive.
That is the work of `corral up`.
"""
