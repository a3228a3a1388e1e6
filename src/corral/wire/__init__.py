"""The JSON shapes, each declared once, for all who send or read it.

No module here knows a route or a call; what only the API reads of users is in `api`.
"""
