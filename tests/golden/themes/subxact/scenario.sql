-- Savepoints, nested, released and rolled back; exceptions caught in functions; whole transactions rolled back.
-- @read pgoutput proto_version=1
-- @read pgoutput proto_version=2 streaming=on
-- @read 16 pgoutput proto_version=4 streaming=parallel
-- @read test_decoding include-xids=0 skip-empty-xacts=1
-- @read test_decoding include-timestamp=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE PUBLICATION golden FOR TABLE t;
-- @changes
BEGIN;
INSERT INTO t VALUES (1, 'top');
SAVEPOINT a;
INSERT INTO t VALUES (2, 'a');
SAVEPOINT b;
INSERT INTO t VALUES (3, 'b, rolled back');
UPDATE t SET v = 'rolled back' WHERE id = 1;
ROLLBACK TO b;
INSERT INTO t VALUES (3, 'b again');
RELEASE a;
SAVEPOINT c;
DELETE FROM t;
ROLLBACK TO c;
UPDATE t SET v = 'end' WHERE id = 2;
COMMIT;
BEGIN;
INSERT INTO t VALUES (4, 'rolled back');
SAVEPOINT a;
INSERT INTO t VALUES (5, 'rolled back');
RELEASE a;
ROLLBACK;
DO $$ BEGIN
  FOR n IN 10..14 LOOP
    BEGIN
      INSERT INTO t VALUES (n, 'from a block');
      IF n % 2 = 0 THEN RAISE 'no'; END IF;
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
  END LOOP;
END $$;
BEGIN;
SAVEPOINT a;
INSERT INTO t VALUES (6, 'only in a savepoint');
COMMIT;
-- @session b
BEGIN;
SAVEPOINT a;
INSERT INTO t VALUES (7, 'first in, last out');
-- @session a
INSERT INTO t VALUES (8, 'in between');
-- @session b
RELEASE a;
UPDATE t SET v = 'x' WHERE id = 8;
COMMIT;
