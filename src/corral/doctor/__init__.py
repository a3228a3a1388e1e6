"""Looks at every part Corral needs and says what to fix; changes nothing.

`look/` finds facts, `judge/` turns facts into lines and looks at nothing, `plan.py`
puts the two together and `examine.py` runs them side by side.
"""
