"""What the scheduler learns from work that ended."""
