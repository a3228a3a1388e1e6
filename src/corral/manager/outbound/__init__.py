"""Calls to addresses that users name."""
