"""A comparison as a picture: dots with their 95% intervals, as SVG or as a page that needs nothing else. Pure.

The charts are small enough to be written by hand, which spares a plotting library of tens of megabytes.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from query.evaluation.comparison import ALL, Row, telling
from query.evaluation.intervals import MIN_DIFFERING, Gain, Interval

SHOWN = ("R@5", "MRR")
WIDTH = 880
LABEL_WIDTH = 270
FIGURES_WIDTH = 210
ROW_HEIGHT = 22
TOP, BOTTOM = 44, 34
LABEL_UNITS = 38
"""Width of a label in half-width characters; a Chinese one takes two."""
TICKS = 5
PLAIN, BETTER, WORSE = "#6b7280", "#0f766e", "#b91c1c"
"""Readable on white, and apart for those who do not see red and green: the sign of a gain is its side of the line."""
FONT = "font-family='system-ui, sans-serif' font-size='12'"


@dataclass(frozen=True)
class Mark:
    """One line of a chart."""

    label: str
    interval: Interval
    colour: str = PLAIN


@dataclass(frozen=True)
class Chart:
    """Marks on one axis; `zero` draws the line that a gain is on either side of."""

    title: str
    marks: Sequence[Mark]
    zero: bool = False


def charts_of(rows: Sequence[Row]) -> list[Chart]:
    """Every setting on all questions; then, for R@5 and MRR, each one's gain over the first by group of questions, or
    the groups' own figures when there is one setting."""
    rows = telling(rows)
    settings = list(dict.fromkeys(row.setting for row in rows))
    if not settings:
        return []
    charts = []
    if len(settings) > 1:
        whole = [row for row in rows if row.group.kind == ALL]
        charts = [
            Chart(f"{name}, all questions", [Mark(r.setting, r.intervals[name]) for r in whole]) for name in SHOWN
        ]
    for name in SHOWN:
        if len(settings) > 1:
            title = f"Gain in {name} over {settings[0]}"
            marks = [_gain_mark(row, row.gains[name], several=len(settings) > 2) for row in rows if row.gains]
        else:
            title = f"{name} by group of questions"
            marks = [Mark(f"{row.group.title} (n={row.metrics.questions})", row.intervals[name]) for row in rows]
        charts.append(Chart(title, marks, zero=len(settings) > 1))
    return charts


def as_svg(charts: Sequence[Chart]) -> str:
    """One picture, the charts below one another."""
    height, parts = 0, []
    for chart in charts:
        parts.append(f"<g transform='translate(0 {height})'>{_chart(chart)}</g>")
        height += _height(chart)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {max(height, 1)}' width='{WIDTH}' "
        f"height='{max(height, 1)}' role='img' {FONT}><rect width='100%' height='100%' fill='white'/>"
        + "".join(parts)
        + "</svg>\n"
    )


def as_html(title: str, charts: Sequence[Chart], lines: Sequence[str]) -> str:
    """A page with the picture and `lines` of text below it."""
    text = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>{escape(title)}</title>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111;"
        "background:#fff}svg{max-width:100%;height:auto}</style>"
        f"<h1>{escape(title)}</h1>{as_svg(charts)}"
        "<p>A dot is the mean over the questions, the line its 95% bootstrap interval. A gain whose line leaves out 0 "
        f"is beyond chance and coloured, when at least {MIN_DIFFERING} questions differ.</p>"
        f"<ul>{text}</ul></html>\n"
    )


def _gain_mark(row: Row, gain: Gain, *, several: bool) -> Mark:
    colour = PLAIN if not gain.beyond_chance else BETTER if gain.mean > 0 else WORSE
    label = f"{row.group.title} (n={row.metrics.questions})"
    return Mark(f"{label}: {row.setting}" if several else label, gain, colour)


def _height(chart: Chart) -> int:
    return TOP + ROW_HEIGHT * len(chart.marks) + BOTTOM


def _chart(chart: Chart) -> str:
    low, high, step = _axis(chart)
    left, right = LABEL_WIDTH, WIDTH - FIGURES_WIDTH
    bottom = TOP + ROW_HEIGHT * len(chart.marks)

    def across(value: float) -> float:
        return round(left + (value - low) / (high - low) * (right - left), 1)

    parts = [f"<text x='12' y='24' font-size='15' font-weight='600'>{escape(chart.title)}</text>"]
    for tick in range(round((high - low) / step) + 1):
        value = low + tick * step
        strong = chart.zero and abs(value) < step / 2
        parts.append(
            f"<line x1='{across(value)}' x2='{across(value)}' y1='{TOP - 6}' y2='{bottom}' "
            f"stroke='{'#111' if strong else '#e5e7eb'}'/>"
            f"<text x='{across(value)}' y='{bottom + 16}' text-anchor='middle' fill='#4b5563'>"
            f"{_figure(value, step, signed=chart.zero)}</text>"
        )
    for number, mark in enumerate(chart.marks):
        y = TOP + ROW_HEIGHT * number + ROW_HEIGHT // 2
        one = mark.interval
        parts.append(
            f"<text x='{left - 12}' y='{y + 4}' text-anchor='end'>{escape(_cut(mark.label))}"
            f"<title>{escape(mark.label)}</title></text>"
            f"<line x1='{across(one.low)}' x2='{across(one.high)}' y1='{y}' y2='{y}' stroke='{mark.colour}' "
            "stroke-width='3' stroke-linecap='round'/>"
            f"<circle cx='{across(one.mean)}' cy='{y}' r='5' fill='{mark.colour}'/>"
            f"<text x='{right + 12}' y='{y + 4}' fill='{mark.colour}'>{escape(str(one))}</text>"
        )
    return "".join(parts)


def _axis(chart: Chart) -> tuple[float, float, float]:
    """(lowest, highest, step) that hold every interval, on round figures; with `zero` it is within."""
    values = [bound for mark in chart.marks for bound in (mark.interval.low, mark.interval.high)]
    low = min([*values, 0.0] if chart.zero else values, default=0.0)
    high = max([*values, 0.0] if chart.zero else values, default=1.0)
    rough = max(high - low, 0.02) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, max(last, first + 1) * step, step


def _figure(value: float, step: float, *, signed: bool) -> str:
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    value = 0.0 if abs(value) < step / 2 else value
    return f"{value:+.{digits}f}" if signed and value else f"{value:.{digits}f}"


def _cut(label: str) -> str:
    """The label within its width, its end kept: a setting's value says more than the group's first letters."""
    used, kept = 0, 0
    for character in reversed(label):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > LABEL_UNITS:
            break
        kept += 1
    return label if kept == len(label) else "…" + label[len(label) - kept + 1 :]
