"""The process in which user code runs."""
