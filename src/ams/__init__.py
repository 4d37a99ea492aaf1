"""The ARGO Messaging Service: multi-tenant publish/subscribe over plain HTTP."""

__version__ = "0.1.0"
__released__ = "2026-11-21T00:00:00Z"
"""When this version was made, as `/v1/version` shows it."""
