"""Flame pictures."""

import xml.etree.ElementTree as ET

from bench.flame import WIDTH, picture

SVG = "{http://www.w3.org/2000/svg}"
STACKS = [(("outer a.py", "inner <b> b.py"), 30.0), (("outer a.py",), 10.0), (("other c.py",), 60.0)]


def boxes(text: str) -> dict[str, tuple[float, float, float]]:
    """Return left, top and width of each box, by what is told of it."""
    found = {}
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        found[title.text or ""] = (float(rect.get("x", "")), float(rect.get("y", "")), float(rect.get("width", "")))
    return found


def test_a_box_is_as_wide_as_what_it_took_and_lies_below_its_caller() -> None:
    found = boxes(picture("all", STACKS, "µs"))

    whole, outer = found["all: 100.0 µs, 100.0 %"], found["outer, a.py: 40.0 µs, 40.0 %"]
    inner, other = found["inner <b>, b.py: 30.0 µs, 30.0 %"], found["other, c.py: 60.0 µs, 60.0 %"]
    assert [each[2] + 0.5 for each in (whole, outer, inner, other)] == [WIDTH, 0.4 * WIDTH, 0.3 * WIDTH, 0.6 * WIDTH]
    assert whole[1] < outer[1] == other[1] < inner[1]
    assert (other[0], outer[0], inner[0]) == (0.0, 0.6 * WIDTH, 0.6 * WIDTH)


def test_what_is_too_narrow_to_be_seen_is_left_out() -> None:
    found = boxes(picture("all", [*STACKS, (("tiny d.py",), 0.01)], "µs"))

    assert not [told for told in found if told.startswith("tiny")]


def test_a_picture_of_nothing_is_a_picture() -> None:
    assert boxes(picture("all", [], "µs")) == {}
