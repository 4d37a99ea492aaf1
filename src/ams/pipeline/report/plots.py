"""SVG figures from plain numbers; text stays text, so it can be searched and copied.

Colours: Okabe and Ito, safe for colour blindness.
"""

import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import isnan
from typing import Any

import matplotlib as mpl
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
STATUS_COLOURS: Mapping[str, str] = {
    "OK": "#009e73",
    "WARNING": "#f0e442",
    "CRITICAL": "#d55e00",
    "UNKNOWN": "#999999",
    "MISSING": "#cccccc",
    "DOWNTIME": "#56b4e9",
}
_SCALE = LinearSegmentedColormap.from_list("from bad to good", ["#d55e00", "#f0e442", "#009e73"])
_UNDEFINED = "#dddddd"
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "ams", "font.size": 9.0, "font.family": "sans-serif"}
_WIDTH = 9.0

PlotSpan = tuple[datetime, datetime, str]  # a stretch of a timeline: its begin, its end and its status


def stacked_bars(series: Mapping[str, Sequence[float]], labels: Sequence[str], unit: str) -> str:
    """Draw a bar for each label, stacked by series."""
    figure, axes = _axes(height=3.2)
    base = [0.0] * len(labels)
    for number, (name, values) in enumerate(series.items()):
        colour = STATUS_COLOURS.get(name) or COLOURS[number % len(COLOURS)]
        axes.bar(range(len(labels)), values, bottom=base, label=name, color=colour, width=0.7)
        base = [below + value for below, value in zip(base, values, strict=True)]
    crowded = len(labels) > 6 and max(map(len, labels)) > 2
    axes.set_xticks(range(len(labels)), labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if all(float(value).is_integer() for value in base):
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if len(series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return _svg(figure)


def board(values: Mapping[str, Sequence[float]], labels: Sequence[str]) -> str:
    """Draw a row for each name and a cell for each label, coloured by its percentage; NaN is undefined."""
    figure, axes = _axes(height=0.9 + 0.32 * max(len(values), 1))
    for row, cells in enumerate(values.values()):
        for column, value in enumerate(cells):
            colour = _UNDEFINED if isnan(value) else _SCALE(value / 100)
            axes.barh(row, 0.94, left=column - 0.47, height=0.88, color=colour)
            axes.text(column, row, "-" if isnan(value) else f"{value:.1f}", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.5, max(len(labels), 1) - 0.5)
    _name_rows(axes, list(values))
    return _svg(figure)


def timelines(rows: Mapping[str, Sequence[PlotSpan]]) -> str:
    """Draw a strip of statuses over time for each name."""
    figure, axes = _axes(height=0.9 + 0.3 * max(len(rows), 1))
    for row, spans in enumerate(rows.values()):
        for begin, end, status in spans:
            width, left = (end - begin) / timedelta(days=1), dates.date2num(begin)
            axes.barh(row, width, left=left, height=0.7, color=STATUS_COLOURS.get(status, _UNDEFINED))
    axes.xaxis_date()
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    # Bars of no width would start at 1970 and stretch the axis.
    known = [Patch(color=colour, label=status) for status, colour in STATUS_COLOURS.items()]
    figure.legend(handles=known, loc="outside lower center", ncols=len(known), frameon=False, fontsize=8)
    _name_rows(axes, list(rows))
    return _svg(figure)


def _axes(height: float) -> tuple[Figure, Axes]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _svg(figure: Figure) -> str:
    written = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return text[text.index("<svg") :]
