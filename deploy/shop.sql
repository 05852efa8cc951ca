-- What the trial replicates, and the role that reads it. PostgreSQL's image runs this once, with psql.
\getenv password CDC_PASSWORD
CREATE TABLE orders (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, state text NOT NULL, total numeric(10, 2));
INSERT INTO orders (state, total) SELECT 'new', n FROM generate_series(1, 1000) n;
CREATE ROLE cdc LOGIN REPLICATION PASSWORD :'password';
GRANT SELECT ON orders TO cdc;
CREATE PUBLICATION shop FOR TABLE orders;
