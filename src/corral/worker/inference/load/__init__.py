"""Where a model is, where it fits, and what is loaded."""
