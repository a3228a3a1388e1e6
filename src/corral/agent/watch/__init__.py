"""What a node sees of itself: load, owner, GPUs."""
