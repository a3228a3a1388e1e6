"""The agent's own life: what it keeps running, and what it tells the manager."""
