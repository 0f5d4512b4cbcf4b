"""The views, acts, calls and panels that a module adds to the user's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import scbroker
from scbroker.cli.run import Run
from scbroker.cli.web.site import Act, Call, View

Container = scbroker.Container[Any]


def _nothing(run: Run, container: Container) -> Mapping[str, object]:
    del run, container
    return {}


class Panel(NamedTuple):
    """A section on the page of a container.

    `values` is called in a thread, so it may wait for the broker; an error is shown in place of the panel.
    The template finds what it returns as `values`; also `container`, the `people` whom the user knows, and
    what the user `may` do.
    """

    title: str
    template: str
    values: Callable[[Run, Container], Mapping[str, object]] = _nothing


class Part(NamedTuple):
    """The views, acts, calls and panels of one module; each path is below the page's root."""

    views: Sequence[View] = ()
    acts: Sequence[Act] = ()
    calls: Sequence[Call] = ()
    panels: Sequence[Panel] = ()
