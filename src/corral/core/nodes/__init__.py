"""Nodes, their GPUs and their workers as values."""
