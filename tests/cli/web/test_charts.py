"""Charts are drawn on the server: what the axes say, and where the line has gaps."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from scbroker.cli.web.charts import Point, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(points: Sequence[Point], title: str = "Requests") -> ElementTree.Element:
    svg = str(line_chart(title, points, lambda value: f"{value:g}", lambda at: f"at {at:g}"))
    return ElementTree.fromstring(svg)


def lines(chart: ElementTree.Element) -> list[list[tuple[float, float]]]:
    found = [each.attrib["points"] for each in chart.iter("polyline")]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", one)] for one in found
    ]


def test_the_label_says_the_last_and_the_highest_value() -> None:
    chart = drawn([(0, 1), (1, 9), (2, 4)])
    assert chart.attrib["aria-label"] == "Requests: now 4, at most 9"
    assert [each.text for each in chart.iter("text")] == ["0", "5", "10", "at 0", "at 2"]


def test_the_line_has_a_gap_where_a_value_is_not_known() -> None:
    first, second = lines(drawn([(0, 1), (1, 1), (2, None), (3, None), (4, 2), (5, 2)]))
    assert len(first) == len(second) == 2
    assert first[-1][0] < second[0][0]
    assert first[0][1] > second[0][1]  # larger values are higher up


def test_all_points_lie_within_the_drawing() -> None:
    for highest in (0.0, 0.003, 1.0, 7.0, 123456.0):
        [line] = lines(drawn([(5, 0), (6, highest), (7, highest / 2)]))
        assert all(0 <= x <= 640 and 0 <= y <= 150 for x, y in line)


@pytest.mark.parametrize("points", [[], [(0, 1)], [(0, None), (1, None), (2, 3)]])
def test_fewer_than_two_values_are_no_line(points: list[Point]) -> None:
    text = line_chart("Requests", points, str, str)
    assert "not enough readings" in text
    assert "<svg" not in text


def test_a_title_is_text() -> None:
    assert drawn([(0, 1), (1, 2)], '"<b>').attrib["aria-label"].startswith('"<b>: now')
