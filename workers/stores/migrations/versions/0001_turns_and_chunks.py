"""Turns, chunks and spaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first three tables."""
    op.create_table(
        "spaces",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("embedder", sa.String(256), nullable=False),
        sa.Column("setting", sa.String(1024), nullable=False),
        sa.Column("scripts", sa.Text),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("chunk_tokens", sa.Integer, nullable=False),
        sa.Column("chunk_overlap", sa.Integer, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "turns",
        sa.Column("turn_key", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("session_id", sa.String(256), nullable=False),
        sa.Column("turn_index", sa.BigInteger, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("agent_id", sa.String(256)),
        sa.Column("speaker", sa.String(256)),
        sa.Column("source", sa.String(256), nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("content_hash", sa.String(32), nullable=False),
        sa.Column("created_at_us", sa.BigInteger),
        sa.Column("ingested_at_us", sa.BigInteger, nullable=False),
        sa.Column("entry_order", sa.String(40), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
    )
    op.create_index("turns_by_session", "turns", ["tenant", "session_id", "turn_index"])
    op.create_index("turns_by_state", "turns", ["state"])
    op.create_table(
        "chunks",
        sa.Column("vector_id", sa.String(32), primary_key=True),
        sa.Column("turn_key", sa.String(32), sa.ForeignKey("turns.turn_key", ondelete="CASCADE"), nullable=False),
        sa.Column("space_id", sa.String(64), sa.ForeignKey("spaces.id"), nullable=False),
        sa.Column("chunk_index", sa.Integer, nullable=False),
        sa.Column("total_chunks", sa.Integer, nullable=False),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("end", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("language", sa.String(64)),
    )
    op.create_index("chunks_by_turn", "chunks", ["turn_key"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("chunks")
    op.drop_table("turns")
    op.drop_table("spaces")
