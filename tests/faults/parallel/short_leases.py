"""The program of the campaign of kills, in which a parallel subscription may also have a deadline of a second."""

from ams.cli import main
from ams.service import subscriptions
from tests.faults import recycling


def plant() -> None:
    """Change the program."""
    recycling.plant()
    subscriptions.MIN_ACK_DEADLINE = 1  # type: ignore[attr-defined]


if __name__ == "__main__":
    plant()
    main.main()
