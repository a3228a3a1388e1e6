"""Nodes: for operators, for agents, and the tunnel to Redis."""
