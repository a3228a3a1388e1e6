"""Alerts: what is wrong, and who is told."""
