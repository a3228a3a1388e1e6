"""How a call gets to the manager and back."""
