"""The manager's verbs and loops: accepts tasks, hands them out, keeps the record."""
