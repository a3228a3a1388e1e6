"""What tasks leave behind while they run and after: logs, streams, files."""
