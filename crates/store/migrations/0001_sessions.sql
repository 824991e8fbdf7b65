-- One row, written with every transaction: how many there were. The mark beside the file remembers the number.
CREATE TABLE commits (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    count INTEGER NOT NULL
) STRICT;
INSERT INTO commits (id, count) VALUES (1, 0);

-- Daemons, and until when each counts as alive.
CREATE TABLE owners (
    id TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    name TEXT,
    reuse_key TEXT,
    image TEXT NOT NULL,
    runtime TEXT NOT NULL,
    settings TEXT NOT NULL,
    workspace TEXT NOT NULL,
    agent_session TEXT,
    status TEXT NOT NULL CHECK (status IN ('live', 'terminating', 'terminated')),
    keep TEXT CHECK (keep IN ('directories', 'nothing')),
    status_at INTEGER,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    -- Who may write for it, and under which lease. The number only grows.
    owner TEXT,
    fence INTEGER NOT NULL DEFAULT 0,
    CHECK ((status = 'live') = (keep IS NULL)),
    CHECK ((status = 'live') = (status_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX sessions_reuse_key ON sessions (principal, reuse_key)
    WHERE status = 'live' AND reuse_key IS NOT NULL;
CREATE INDEX sessions_principal ON sessions (principal, id);
CREATE INDEX sessions_live ON sessions (principal, id) WHERE status = 'live';
CREATE INDEX sessions_terminating ON sessions (id) WHERE status = 'terminating';

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    principal TEXT NOT NULL,
    seq INTEGER NOT NULL,
    task TEXT NOT NULL,
    output_schema TEXT,
    model TEXT,
    idempotency_key TEXT,
    message_id TEXT UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'failed', 'canceled')),
    phase TEXT CHECK (phase IN ('starting', 'prompting', 'finishing')),
    attempt INTEGER,
    -- The lease under which it runs.
    fence INTEGER,
    cancel_requested TEXT CHECK (cancel_requested IN ('caller', 'termination', 'daemon')),
    final_output TEXT,
    structured_output TEXT,
    result_summary TEXT,
    error_code TEXT,
    error_message TEXT,
    canceled_by TEXT CHECK (canceled_by IN ('caller', 'termination', 'daemon')),
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    input_tokens INTEGER,
    output_tokens INTEGER,
    reasoning_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    cost_micros INTEGER,
    CHECK ((state = 'running') = (phase IS NOT NULL AND attempt IS NOT NULL AND fence IS NOT NULL)),
    CHECK (state <> 'running' OR message_id IS NOT NULL AND started_at IS NOT NULL),
    CHECK ((state IN ('completed', 'failed', 'canceled')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'completed') = (final_output IS NOT NULL AND result_summary IS NOT NULL)),
    CHECK ((state = 'failed') = (error_code IS NOT NULL AND error_message IS NOT NULL)),
    CHECK ((state = 'canceled') = (canceled_by IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX runs_order ON runs (session, seq);
CREATE UNIQUE INDEX runs_idempotency_key ON runs (session, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- One prompt at a time.
CREATE UNIQUE INDEX runs_running ON runs (session) WHERE state = 'running';
CREATE INDEX runs_queued ON runs (session, seq) WHERE state = 'queued';
CREATE INDEX runs_unfinished ON runs (session) WHERE state IN ('queued', 'running');

CREATE TABLE artifacts (
    run TEXT NOT NULL REFERENCES runs (id),
    path TEXT NOT NULL,
    session TEXT NOT NULL REFERENCES sessions (id),
    principal TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('record', 'changed')),
    size INTEGER NOT NULL,
    modified INTEGER NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX artifacts_session ON artifacts (session, run, path);
