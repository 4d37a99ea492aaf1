"""Data of messages, and their decoded bytes, for tests of every decoder."""

DECODED = [("aGk=", b"hi"), ("", b""), ("aGVs\nbG8=", b"hello"), ("aG\r\nk=\n", b"hi"), ("\r\n", b""), ("-_", None),
           ("/+8=", b"\xff\xef"), ("aGk", None), ("a", None), ("aG*k", None), ("====", None), ("aG k=", None),
           ("-_-_", None), ("msg 1", None), ("\u00fc!", None)]  # fmt: skip
"""Texts, and their bytes; None for invalid base64. Line breaks are ignored."""
