"""Python functions as tasks."""
