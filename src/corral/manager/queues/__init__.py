"""Job types, shares and schedules."""
