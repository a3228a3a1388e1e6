"""Turns a repository or an uploaded folder into files and a Python on this node.

Fetches, builds and keeps; it runs nothing of what it prepared.
"""
