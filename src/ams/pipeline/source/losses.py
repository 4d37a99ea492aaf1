"""Messages that were to be read and are kept no longer."""

import warnings

from ams.pipeline.errors import DataLoss


class LostMessages(UserWarning):
    """Messages that were to be read are kept no longer, and reading goes on without them, as it was told to."""


def remade(topic: str, *, fail: bool) -> None:
    """Raise `DataLoss` of a topic that is not the one that was read before, or only warn."""
    text = f"topic {topic} was deleted and made again since the checkpoint"
    if fail:
        raise DataLoss(
            f"{text}; begin with a new checkpoint (of a run, another --work), or with failOnDataLoss=false (of a run, "
            "--skip-lost) go on at the oldest message of the new one"
        )
    warnings.warn(f"{text}; what was not read of the old one is lost", LostMessages, stacklevel=2)


def lost(what: str, *, fail: bool) -> None:
    """Raise `DataLoss`, or only warn."""
    text = f"{what} are kept no longer"
    if fail:
        raise DataLoss(f"{text}; with failOnDataLoss=false (of a run, --skip-lost) reading goes on without them")
    warnings.warn(text, LostMessages, stacklevel=2)
