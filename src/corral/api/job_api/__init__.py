"""The job API: a second face of the same tasks, workers and nodes."""
