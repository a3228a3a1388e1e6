"""Runs the scheduler in virtual time: what would have been, what would be."""
