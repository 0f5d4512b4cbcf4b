"""Alembic's entry point: run revisions over the connection that `upgrade` passes."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transaction_per_migration=True,  # `autocommit_block` needs it
)
with context.begin_transaction():
    context.run_migrations()
