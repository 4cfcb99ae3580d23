"""The catalog's tables, as SQLAlchemy Core sees them. No I/O; the migrations are what creates them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()

KEY_LENGTH = 32
PENDING = "pending"
"""A turn whose vectors are not yet known to be in the vector store."""
INDEXED = "indexed"

spaces = Table(
    "spaces",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("embedder", String(256), nullable=False),
    Column("setting", String(1024), nullable=False),  # the `embedder` setting that loads it
    Column("scripts", Text),  # JSON array of the writing systems it speaks; NULL means all
    Column("dimension", Integer, nullable=False),
    Column("chunk_tokens", Integer, nullable=False),
    Column("chunk_overlap", Integer, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),  # see `spaces.State`
    Column("state_since_us", BigInteger),
    Column("search", Text),  # JSON of how its index is searched; NULL: as by default
    Column("plan", Text),  # JSON of how a space is built, see `spaces.Plan`; NULL: as the settings say
)

turns = Table(
    "turns",
    METADATA,
    Column("turn_key", String(KEY_LENGTH), primary_key=True),  # digest of the four identity columns
    Column("tenant", String(256), nullable=False),
    Column("session_id", String(256), nullable=False),
    Column("turn_index", BigInteger, nullable=False),
    Column("role", String(16), nullable=False),
    Column("agent_id", String(256)),
    Column("speaker", String(256)),
    Column("source", String(256), nullable=False),
    Column("tags", Text, nullable=False),  # JSON array
    Column("metadata", Text, nullable=False),  # JSON object
    Column("content", Text, nullable=False),
    Column("content_hash", String(KEY_LENGTH), nullable=False),
    Column("created_at_us", BigInteger),  # said at the source; missing stays NULL
    Column("ingested_at_us", BigInteger, nullable=False),
    Column("entry_order", String(40), nullable=False),  # zero-padded stream entry id; the higher revision wins
    Column("revision", Integer, nullable=False),  # 0 for a turn that never changed
    Column("state", String(16), nullable=False),
    Index("turns_by_session", "tenant", "session_id", "turn_index"),
    Index("turns_by_state", "state"),
)

chunks = Table(
    "chunks",
    METADATA,
    Column("vector_id", String(KEY_LENGTH), primary_key=True),
    Column("turn_key", String(KEY_LENGTH), ForeignKey("turns.turn_key", ondelete="CASCADE"), nullable=False),
    Column("space_id", String(64), ForeignKey("spaces.id"), nullable=False),
    Column("chunk_index", Integer, nullable=False),
    Column("total_chunks", Integer, nullable=False),
    Column("start", Integer, nullable=False),  # span of the turn's content, in characters
    Column("end", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("language", String(64)),
    Index("chunks_by_turn", "turn_key"),
)

tombstones = Table(
    "tombstones",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("tenant_digest", String(KEY_LENGTH), nullable=False),
    Column("session_digest", String(KEY_LENGTH)),
    Column("agent_digest", String(KEY_LENGTH)),
    Column("before_us", BigInteger),
    Column("cutoff", String(40), nullable=False),  # zero-padded entry order; what was accepted later is not covered
    Column("tenant", String(256)),  # these three in plain only until everything is erased
    Column("session_id", String(256)),
    Column("agent_id", String(256)),
    Column("turns", Integer, nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("erased_at_us", BigInteger),  # NULL while the erasure is not finished
    Column("reason", String(16), nullable=False, server_default="forget"),  # or "retention": covers nothing on its way
    Index("tombstones_by_tenant", "tenant_digest"),
)

imports = Table(
    "imports",
    METADATA,
    Column("file_key", String(KEY_LENGTH), primary_key=True),  # digest of tenant, session prefix and path
    Column("path", Text, nullable=False),
    Column("format", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("mtime_us", BigInteger, nullable=False),
    Column("inode", BigInteger, nullable=False),
    Column("ends_digest", String(KEY_LENGTH), nullable=False),  # of its first bytes and the last before `size`
    Column("state", Text),  # JSON of the reader; NULL before its first mark
    Column("batch", Integer, nullable=False),  # of `imported` rows, the last that was planned
    Column("sent_batch", Integer, nullable=False),  # and the last that is on the stream
    Column("finished", Boolean, nullable=False),
    Column("turns", BigInteger, nullable=False),
    Column("bad", Integer, nullable=False, server_default="0"),  # places that could not be read
    Column("updated_at_us", BigInteger, nullable=False),
)

imported = Table(
    "imported",
    METADATA,
    Column("origin", String(KEY_LENGTH), primary_key=True),  # digest of tenant, prefix, format and the message's origin
    Column("session_digest", String(KEY_LENGTH), nullable=False),
    Column("turn_index", BigInteger, nullable=False),
    Column("file_key", String(KEY_LENGTH), nullable=False),
    Column("batch", Integer, nullable=False),  # in which it was sent last; see `imports.UNSENT`
    Index("imported_by_session", "session_digest", "turn_index"),
)

maintenance_runs = Table(
    "maintenance_runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("job", String(32), nullable=False),
    Column("trigger", String(16), nullable=False),  # scheduled, on demand, manual
    Column("due_at_us", BigInteger),  # of a scheduled run
    Column("holder", String(256), nullable=False),  # the process
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),  # NULL while it runs, or its process was killed
    Column("outcome", String(16)),  # see `maintenance_runs.RunOutcome`
    Column("did", Text),  # one line
    Column("before", Text),  # JSON of figures
    Column("after", Text),
    Column("error", Text),
    UniqueConstraint("job", "due_at_us"),
    Index("maintenance_runs_by_job", "job", "started_at_us"),
)

doomed = Table(
    "doomed",
    METADATA,
    Column("turn_key", String(KEY_LENGTH), primary_key=True),  # of a turn that is gone from `turns`, not yet erased
    Column("tombstone_id", Integer, nullable=False),
    Index("doomed_by_tombstone", "tombstone_id"),
)

probes = Table(
    "probes",
    METADATA,
    Column("id", String(256), primary_key=True),
    Column("tenant", String(256), nullable=False),
    Column("query", Text, nullable=False),
    Column("evidence", Text, nullable=False),  # JSON array of turn keys, any of which answers it
)

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", String(16), primary_key=True),  # the part of a key that may be shown
    Column("name", String(256), nullable=False),  # what people call it; may be empty
    Column("tenant", String(256), nullable=False),
    Column("rights", Text, nullable=False),  # JSON array, see `api_keys.Right`
    Column("secret_digest", String(64), nullable=False),  # SHA-256
    Column("created_at_us", BigInteger, nullable=False),
    Column("revoked_at_us", BigInteger),  # NULL while it is good
)
