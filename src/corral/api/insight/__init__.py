"""Figures, usage, simulations."""
