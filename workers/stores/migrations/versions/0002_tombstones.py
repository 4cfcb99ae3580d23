"""Tombstones: what was forgotten, and how far its erasure has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tombstones",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("tenant_digest", sa.String(32), nullable=False),
        sa.Column("session_digest", sa.String(32)),
        sa.Column("agent_digest", sa.String(32)),
        sa.Column("before_us", sa.BigInteger),
        sa.Column("cutoff", sa.String(40), nullable=False),
        sa.Column("tenant", sa.String(256)),
        sa.Column("session_id", sa.String(256)),
        sa.Column("agent_id", sa.String(256)),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("erased_at_us", sa.BigInteger),
    )
    op.create_index("tombstones_by_tenant", "tombstones", ["tenant_digest"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("tombstones")
