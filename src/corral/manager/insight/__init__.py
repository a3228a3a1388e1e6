"""Figures for people and for Prometheus, and the journal of decisions."""
