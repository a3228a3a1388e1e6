"""The ports of nodes and workers, and the link by which those reach the manager."""
