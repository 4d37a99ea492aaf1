"""The ARGO Messaging Service: multi-tenant publish/subscribe over plain HTTP."""

__version__ = "0.1.0"
