-- A journal of schema version 1 as SQLite's .dump writes it: one session of two runs, one large content.
PRAGMA application_id=1951625323;
PRAGMA user_version=1;
CREATE TABLE runs (
            number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, status TEXT, title TEXT, model TEXT, agent TEXT,
            created REAL, updated REAL, session_id TEXT, principal TEXT, parent_run_id TEXT,
            epoch INTEGER NOT NULL, owner TEXT, held_until REAL);
CREATE INDEX runs_by_time ON runs (created);
CREATE INDEX runs_by_session ON runs (session_id);
CREATE TABLE records (pos INTEGER PRIMARY KEY, data TEXT NOT NULL, places TEXT);
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE blob_uses (
            digest TEXT NOT NULL REFERENCES blobs (digest), pos INTEGER NOT NULL, PRIMARY KEY (digest, pos));
CREATE INDEX blob_uses_by_pos ON blob_uses (pos);
CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
            version INTEGER NOT NULL, runs INTEGER NOT NULL, last_run TEXT, principal TEXT,
            forked_run TEXT, forked_seq INTEGER, history TEXT);
CREATE INDEX sessions_by_time ON sessions (updated);
INSERT INTO sessions VALUES('s1','What is in notes.md?',1000.0,1100.0,2,2,'r2','ann',NULL,NULL,NULL);
INSERT INTO runs VALUES(1,'r1','answered','What is in notes.md?','openai:m','agent',1000.0,1002.0,'s1','ann',NULL,1,NULL,NULL);
INSERT INTO runs VALUES(2,'r2','running','And now?','openai:m','agent',1100.0,1100.0,'s1','ann',NULL,1,NULL,NULL);
INSERT INTO records VALUES(4294967296,'{"format":1,"type":"Record","event":{"type":"RunStarted","messages":[{"type":"Message","role":"user","parts":[{"type":"TextPart","text":"What is in notes.md?"}]}],"model":"openai:m","limits":{"type":"Limits","steps":50},"session_id":"s1"},"step":0,"time":1000.0,"agent":"agent","principal":"ann"}',NULL);
INSERT INTO records VALUES(4294967297,'{"format":1,"type":"Record","event":{"type":"ModelAnswered","message":{"type":"Message","role":"assistant","parts":[{"type":"TextPart","text":null}]},"finish":"stop","usage":{"type":"Usage"}},"step":1,"time":1001.0,"agent":"agent","principal":"ann"}','[[["event","message","parts",0,"text"],"76adc07c7bc4e097adcb85f22c533fbaa13592175d728068ee91038bed76dcec"]]');
INSERT INTO blob_uses VALUES('76adc07c7bc4e097adcb85f22c533fbaa13592175d728068ee91038bed76dcec',4294967297);
INSERT INTO blobs VALUES('76adc07c7bc4e097adcb85f22c533fbaa13592175d728068ee91038bed76dcec',CAST('plans ' || replace(hex(zeroblob(35000)),'00','xy') AS BLOB));
INSERT INTO records VALUES(4294967298,'{"format":1,"type":"Record","event":{"type":"RunFinished","status":"answered","answer":"plans","reason":"answer"},"step":1,"time":1002.0,"agent":"agent","principal":"ann"}',NULL);
INSERT INTO records VALUES(8589934592,'{"format":1,"type":"Record","event":{"type":"RunStarted","messages":[{"type":"Message","role":"user","parts":[{"type":"TextPart","text":"And now?"}]}],"model":"openai:m","limits":{"type":"Limits","steps":50},"session_id":"s1","session_version":1,"follows":"r1","follows_seq":3},"step":0,"time":1100.0,"agent":"agent","principal":"ann"}',NULL);
