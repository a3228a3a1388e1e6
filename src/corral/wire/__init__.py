"""The JSON answers, each declared once: the API encodes them, the client decodes them.

No module here knows a request, a route or a call; what callers send is in `api`.
"""
