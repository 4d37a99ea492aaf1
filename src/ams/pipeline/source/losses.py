"""Messages that were to be read and are kept no longer."""

import warnings

from ams.pipeline.errors import DataLoss


class LostMessages(UserWarning):
    """Messages that were to be read are kept no longer, and reading goes on without them, as it was told to."""


def lost(what: str, *, fail: bool) -> None:
    """Raise `DataLoss`, or only warn."""
    text = f"{what} are kept no longer"
    if fail:
        raise DataLoss(f"{text}; with failOnDataLoss=false (of a run, --skip-lost) reading goes on without them")
    warnings.warn(text, LostMessages, stacklevel=2)
