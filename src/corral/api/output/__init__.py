"""What tasks leave behind: logs, streams, commands beside them, files."""
