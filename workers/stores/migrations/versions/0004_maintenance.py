"""Maintenance: a record of every run, spaces beside the active one, turns that retention erases, probe questions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create three tables, and say of a space and of a tombstone what it is."""
    op.create_table(
        "maintenance_runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job", sa.String(32), nullable=False),
        sa.Column("trigger", sa.String(16), nullable=False),
        sa.Column("due_at_us", sa.BigInteger),
        sa.Column("holder", sa.String(256), nullable=False),
        sa.Column("started_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
        sa.Column("outcome", sa.String(16)),
        sa.Column("did", sa.Text),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.Column("error", sa.Text),
        sa.UniqueConstraint("job", "due_at_us"),
    )
    op.create_index("maintenance_runs_by_job", "maintenance_runs", ["job", "started_at_us"])
    op.create_table(
        "doomed",
        sa.Column("turn_key", sa.String(32), primary_key=True),
        sa.Column("tombstone_id", sa.Integer, nullable=False),
    )
    op.create_index("doomed_by_tombstone", "doomed", ["tombstone_id"])
    op.create_table(
        "probes",
        sa.Column("id", sa.String(256), primary_key=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
    )
    op.add_column("imports", sa.Column("bad", sa.Integer, nullable=False, server_default="0"))
    op.add_column("tombstones", sa.Column("reason", sa.String(16), nullable=False, server_default="forget"))
    op.add_column("spaces", sa.Column("state", sa.String(16), nullable=False, server_default="standby"))
    op.add_column("spaces", sa.Column("state_since_us", sa.BigInteger))
    op.add_column("spaces", sa.Column("search", sa.Text))
    op.add_column("spaces", sa.Column("plan", sa.Text))
    op.execute("UPDATE spaces SET state = 'active' WHERE active")
    op.drop_column("spaces", "active")


def downgrade() -> None:
    """Drop them; a space that is not active stays known."""
    op.add_column("spaces", sa.Column("active", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("UPDATE spaces SET active = (state = 'active')")
    for column in ("state", "state_since_us", "search", "plan"):
        op.drop_column("spaces", column)
    op.drop_column("tombstones", "reason")
    op.drop_column("imports", "bad")
    for table in ("probes", "doomed", "maintenance_runs"):
        op.drop_table(table)
