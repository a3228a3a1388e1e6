"""The `corral` command: one file per noun, and the only place that wires rooms."""
