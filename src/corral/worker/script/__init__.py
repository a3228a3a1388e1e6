"""Scripts as tasks: a fresh folder, isolation, live output, files back, a real stop."""
