"""What is measured, and the rules that judge it."""
