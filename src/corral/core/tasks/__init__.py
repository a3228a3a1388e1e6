"""Tasks as values: their states, options, retries, schedules and shares."""
