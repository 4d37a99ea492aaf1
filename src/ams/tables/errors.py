"""What can go wrong with a table."""

from ams.core.errors import AmsError


class WrongTable(AmsError):
    """A table was written by something else, does not fit, or is damaged; nothing was changed."""


class StoreFailed(AmsError):
    """An object store did not answer, or refused; what was confirmed stays, and the same may be tried again."""
