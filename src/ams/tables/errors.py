"""What can go wrong with a table."""

from ams.core.errors import AmsError


class WrongTable(AmsError):
    """A table was written by something else, does not fit, or is damaged; nothing was changed."""
