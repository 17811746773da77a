"""What alembic runs: the migrations, on the connection and in the transaction of :mod:`metalyard.ledger.store`."""

from __future__ import annotations

from alembic import context

from metalyard.ledger.schema import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
