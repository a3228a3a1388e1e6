"""Looks at every part Corral needs and says what to fix; changes nothing.

One module a subject: what is looked at, the facts, and how they are judged.
`examine.py` lists the subjects and runs their checks side by side.
"""
