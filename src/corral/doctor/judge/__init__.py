"""Turns facts into lines: no clock, no files, no network."""
