"""What keeps the cluster clean: rescue, retention, unused objects."""
