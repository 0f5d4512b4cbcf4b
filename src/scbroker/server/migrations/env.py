"""Run by Alembic, with the connection that `upgrade` gives it."""

from __future__ import annotations

from alembic import context

from scbroker.server.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
