"""What the scheduler knows: who waits, who serves, whose turn it is."""
