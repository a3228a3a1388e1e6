"""Models on a node's disk: fetched once whoever asks, checked, and dropped in time."""
