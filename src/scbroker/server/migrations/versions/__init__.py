"""List the revisions of the tables, for Alembic."""
