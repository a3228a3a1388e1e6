"""What can be asked of the manager, by capability."""
