"""Decides which task runs where: events in, plan out; no I/O, no clock, no threads."""
