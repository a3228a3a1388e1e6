"""Job types, schedules and shares."""
