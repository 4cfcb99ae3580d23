"""Alembic's entry: runs the migrations on the connection that the catalog hands over."""

from __future__ import annotations

from alembic import context

from workers.stores.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
