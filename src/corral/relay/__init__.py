"""The ports of nodes and workers."""
