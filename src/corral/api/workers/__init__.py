"""Workers: which there are, their launch and end, their own reports, scaling."""
