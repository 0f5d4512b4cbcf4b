"""The schema of the first release: `upgrade` creates it from `tables.py`, and there is nothing to change."""

revision = "0015"  # earlier revisions were never released
down_revision = None


def upgrade() -> None:
    """Do nothing: a new database starts with the newest tables, and no older one is supported."""
