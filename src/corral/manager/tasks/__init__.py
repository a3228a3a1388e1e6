"""A task from its submission to its end."""
