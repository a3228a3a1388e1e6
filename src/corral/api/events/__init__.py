"""What happened, and what happens."""
