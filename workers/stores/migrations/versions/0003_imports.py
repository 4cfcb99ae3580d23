"""Imports: how far each transcript file has come, and which of its turns are sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the two tables."""
    op.create_table(
        "imports",
        sa.Column("file_key", sa.String(32), primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("format", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_us", sa.BigInteger, nullable=False),
        sa.Column("inode", sa.BigInteger, nullable=False),
        sa.Column("ends_digest", sa.String(32), nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("batch", sa.Integer, nullable=False),
        sa.Column("sent_batch", sa.Integer, nullable=False),
        sa.Column("finished", sa.Boolean, nullable=False),
        sa.Column("turns", sa.BigInteger, nullable=False),
        sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "imported",
        sa.Column("origin", sa.String(32), primary_key=True),
        sa.Column("session_digest", sa.String(32), nullable=False),
        sa.Column("turn_index", sa.BigInteger, nullable=False),
        sa.Column("file_key", sa.String(32), nullable=False),
        sa.Column("batch", sa.Integer, nullable=False),
    )
    op.create_index("imported_by_session", "imported", ["session_digest", "turn_index"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("imported")
    op.drop_table("imports")
