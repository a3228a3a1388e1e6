"""Tasks in PostgreSQL, with their logs, files and kept results."""
