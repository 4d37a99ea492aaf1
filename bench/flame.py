"""A flame picture: what was running, as boxes as wide as the processor time it took, callers above what they call.

One file of SVG without a script: a browser shows what a box is while the mouse is on it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, LETTER = 1200.0, 17, 6.2
"""Pixels: of the picture, of the height of a box, of a letter."""
LEAST = 1.5
"""Boxes narrower than this, in pixels, are left out."""
COLOURS = (
    ("ams/http", "#f4a261"),
    ("ams/storage", "#8ab17d"),
    ("ams/", "#e9c46a"),
    ("uvicorn/", "#9db4c0"),
    ("uvloop", "#e76f51"),
    ("kernel", "#e76f51"),
)
"""By where a function is."""
OTHER = "#d9d9d9"


@dataclass
class Box:
    """A function as called by those above it."""

    took: float = 0.0
    """What it took with all it called."""
    called: dict[str, "Box"] = field(default_factory=dict)


def picture(title: str, stacks: Iterable[tuple[Sequence[str], float]], unit: str) -> str:
    """Return the picture of stacks, each with `FUNCTION FILE` outermost first and what it took in `unit`."""
    root = Box()
    for frames, took in stacks:
        root.took += took
        box = root
        for frame in frames:
            box = box.called.setdefault(frame, Box())
            box.took += took
    boxes: list[str] = []
    depth = _draw(f"{title} ", root, 0.0, 0, root.took, unit, boxes)
    height = (depth + 1) * ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}" width="{WIDTH:g}"'
        f' font-family="monospace" font-size="11">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(boxes)
        + "\n</svg>\n"
    )


def _draw(frame: str, box: Box, left: float, depth: int, whole: float, unit: str, boxes: list[str]) -> int:
    """Add a box and those below it; return how deep they go."""
    width = WIDTH * box.took / whole if whole else 0.0
    if width < LEAST:
        return depth - 1
    boxes.append(_box(frame, box.took, left, depth, width, whole, unit))
    deepest = depth
    for called, below in sorted(box.called.items(), key=lambda each: -each[1].took):
        deepest = max(deepest, _draw(called, below, left, depth + 1, whole, unit, boxes))
        left += WIDTH * below.took / whole
    return deepest


def _box(frame: str, took: float, left: float, depth: int, width: float, whole: float, unit: str) -> str:
    name, _, file = frame.rpartition(" ")
    colour = next((colour for where, colour in COLOURS if file.startswith(where)), OTHER)
    told = f"{name}{', ' if file else ''}{file}: {took:.1f} {unit}, {100 * took / whole:.1f} %"
    short = name if depth == 0 else name.replace(".<locals>", "").replace(".<listcomp>", "[]")
    letters = int((width - 4) / LETTER)
    text = short if len(short) <= letters else short[: letters - 1] + "…" if letters > 3 else ""
    top = depth * ROW
    shown = f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(text)}</text>' if text else ""
    return (
        f'<g><title>{escape(told)}</title><rect x="{left:.1f}" y="{top}" width="{max(width - 0.5, 0.5):.1f}"'
        f' height="{ROW - 1}" fill="{colour}"/>{shown}</g>'
    )
