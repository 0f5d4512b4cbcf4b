"""Draw a QR code as SVG, which a page shows without script, inline style or a further request."""

from __future__ import annotations

import segno
from markupsafe import Markup


def qr_code(text: str, label: str) -> Markup:
    """Return the QR code of a text, dark on light in every theme; the label is for screen readers."""
    drawn = segno.make_qr(text, error="m").svg_inline(
        scale=1, border=4, dark="#000", light="#fff", svgclass="qr", lineclass=None, omitsize=True
    )
    # The drawing has numbers and colours only: the text is in none of its attributes.
    return Markup('<svg role="img" aria-label="{}" ').format(label) + Markup(  # noqa: S704
        drawn.removeprefix("<svg ")
    )
