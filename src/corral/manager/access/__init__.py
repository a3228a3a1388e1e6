"""Who may do what: keys, limits, sessions, secrets, and the audit trail."""
