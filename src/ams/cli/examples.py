"""Examples below the help of a command."""


def examples(*lines: str) -> str:
    """Return lines to be typed as they are shown below the help."""
    # The first line tells the formatter to keep the line ends.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
