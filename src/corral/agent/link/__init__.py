"""The ways between a node, its manager, its workers and other nodes."""
