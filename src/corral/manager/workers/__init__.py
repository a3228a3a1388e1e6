"""Workers: who is there, who starts, stops and moves, and how many."""
