-- An id may be older than its session: a box was made ready under it before anybody asked. Newest is by when it was made.
DROP INDEX sessions_principal;
DROP INDEX sessions_live;
CREATE INDEX sessions_principal ON sessions (principal, created_at, id);
CREATE INDEX sessions_live ON sessions (principal, created_at, id) WHERE status = 'live';
