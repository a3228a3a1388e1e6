"""What nodes have, what is taken of it, and where a task fits."""
