-- Who asked for it, as JSON: for people who look at it later. Nothing is decided by it.
ALTER TABLE sessions ADD COLUMN made_by TEXT;
ALTER TABLE runs ADD COLUMN asked_by TEXT;
