-- A journal of schema version 1 in PostgreSQL: a session with one run.
CREATE SCHEMA old;
SET search_path = old;
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (1);
CREATE TABLE runs (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, status TEXT, title TEXT,
    model TEXT, agent TEXT, created DOUBLE PRECISION, updated DOUBLE PRECISION, session_id TEXT, principal TEXT,
    parent_run_id TEXT, epoch BIGINT NOT NULL, owner TEXT, held_until DOUBLE PRECISION);
CREATE INDEX runs_by_time ON runs (created);
CREATE INDEX runs_by_session ON runs (session_id);
CREATE TABLE records (pos BIGINT PRIMARY KEY, data TEXT NOT NULL, places TEXT);
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BYTEA NOT NULL);
CREATE TABLE blob_uses (
    digest TEXT NOT NULL REFERENCES blobs (digest), pos BIGINT NOT NULL, PRIMARY KEY (digest, pos));
CREATE INDEX blob_uses_by_pos ON blob_uses (pos);
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, title TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
    updated DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, runs BIGINT NOT NULL, last_run TEXT, principal TEXT,
    forked_run TEXT, forked_seq BIGINT, history TEXT);
CREATE INDEX sessions_by_time ON sessions (updated);
INSERT INTO sessions VALUES ('s1', 'What is in notes.md?', 1000, 1000, 1, 1, 'r1', 'ann', NULL, NULL, NULL);
INSERT INTO runs (run_id, status, title, model, agent, created, updated, session_id, principal, epoch)
    VALUES ('r1', 'running', 'What is in notes.md?', 'openai:m', 'agent', 1000, 1000, 's1', 'ann', 1);
INSERT INTO records VALUES (4294967296, '{"format":1,"type":"Record","event":{"type":"RunStarted","messages":[{"type":"Message","role":"user","parts":[{"type":"TextPart","text":"What is in notes.md?"}]}],"model":"openai:m","limits":{"type":"Limits","steps":50},"session_id":"s1"},"step":0,"time":1000.0,"agent":"agent","principal":"ann"}', NULL);
