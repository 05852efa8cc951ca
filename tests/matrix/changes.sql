-- {lo} and {hi}: the first and the last key; {pick}: 0, 1 or 2. A paragraph is run as one.

UPDATE account SET v = v || '!', amount = NULL WHERE id BETWEEN {lo} AND {hi} AND id % 3 = {pick};

UPDATE line SET v = NULL WHERE a BETWEEN {lo} AND {hi} AND a % 3 = {pick};

UPDATE line SET doc = repeat('y', 2200) WHERE a BETWEEN {lo} AND {hi} AND a % 40 = {pick};

UPDATE whole SET v = 'w' WHERE id BETWEEN {lo} AND {hi} AND id % 3 = {pick};

UPDATE coded SET v = 'c', id = -id WHERE id BETWEEN {lo} AND {hi} AND id % 4 = {pick};

UPDATE coded SET code = code || '''' WHERE id BETWEEN {lo} AND {hi} AND id % 5 = {pick};

UPDATE part SET area = (area + 1) % 4 WHERE id BETWEEN {lo} AND {hi} AND id % 3 = {pick};

UPDATE part SET v = NULL WHERE id BETWEEN {lo} AND {hi} AND id % 5 = {pick};

UPDATE "Odd ""Table" SET "select" = NULL WHERE "K ey" BETWEEN {lo} AND {hi} AND "K ey" % 3 = {pick};

UPDATE kinds SET f8 = -f8, a = '{{}}', ts = NULL WHERE id BETWEEN {lo} AND {hi} AND id % 3 = {pick};

-- neighbours swap their keys
UPDATE account SET id = -id WHERE id BETWEEN {lo} AND {hi} AND id % 14 / 2 = {pick};
UPDATE account SET id = CASE WHEN -id % 2 = 0 THEN -id + 1 ELSE -id - 1 END WHERE id BETWEEN -{hi} AND -{lo};

UPDATE whole SET id = -id WHERE id BETWEEN {lo} AND {hi} AND id % 6 = {pick};

UPDATE line SET b = b || 'm', a = a WHERE a BETWEEN {lo} AND {hi} AND a % 6 = {pick};

DELETE FROM account WHERE id BETWEEN {lo} AND {hi} AND id % 5 = {pick};

DELETE FROM line WHERE a BETWEEN {lo} AND {hi} AND a % 8 = {pick};

DELETE FROM whole WHERE id BETWEEN {lo} AND {hi} AND id % 5 = {pick};

DELETE FROM coded WHERE id BETWEEN {lo} AND {hi} AND id % 9 = {pick};

DELETE FROM part WHERE id BETWEEN {lo} AND {hi} AND id % 6 = {pick};

DELETE FROM "Odd ""Table" WHERE "K ey" BETWEEN {lo} AND {hi} AND "K ey" % 7 = {pick};

DELETE FROM kinds WHERE id BETWEEN {lo} AND {hi} AND id % 7 = {pick};
