"""The leader's memory: what is live, and who is waiting for it."""
