"""Keys of the query service: whose they are and what they may do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("rights", sa.Text, nullable=False),
        sa.Column("secret_digest", sa.String(64), nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_at_us", sa.BigInteger),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("api_keys")
