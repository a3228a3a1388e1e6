"""What happened, what happens, and what is wrong."""
