"""Nodes: joining, heartbeats, holds, labels, and leaving."""
