"""Commands for nodes and GPUs."""
