"""What the terminal says of a task, node, worker or GPU, once for every command."""
