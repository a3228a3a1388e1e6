"""Makes words of user code safe to send on: valid Unicode, no NUL, bounded."""

from __future__ import annotations

MESSAGE_LIMIT = 8 * 1024
TRACEBACK_LIMIT = 64 * 1024


def clean(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Lone surrogates and NUL shown as escapes, the middle cut out when too long."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if "\x00" in text:
        text = text.replace("\x00", "\\x00")
    if len(text) > limit:
        half = limit // 2
        cut = len(text) - 2 * half
        text = f"{text[:half]}\n[... {cut} characters cut ...]\n{text[-half:]}"
    return text
