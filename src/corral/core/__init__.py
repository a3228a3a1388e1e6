"""Nouns and rules of Corral: plain values, no clock, no log, no I/O."""
