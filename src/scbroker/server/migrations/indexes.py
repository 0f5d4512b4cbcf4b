"""Indexes that may be there before the revision that they belong to: see `upgrade`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def add_index(name: str, table: str, columns: Sequence[str], **options: Any) -> None:
    """Makes an index unless it is there. To look takes no lock, which to make it if it is not would."""
    if all(found["name"] != name for found in sa.inspect(op.get_bind()).get_indexes(table)):
        op.create_index(name, table, columns, **options)
