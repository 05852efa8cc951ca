-- What a theme's expected changes come from. Notes are unlogged: in no WAL, so no output plugin sees them.
CREATE SCHEMA golden;
CREATE EXTENSION hstore SCHEMA golden;
CREATE UNLOGGED TABLE golden.note (
  seq bigserial, at timestamptz DEFAULT clock_timestamp(), xid xid, kind text, origin text, tab text, identity text[],
  old json, new json, prefix text, content text, relation json
);

-- hstore holds what each column's output function gives, which JSON of a row does not
CREATE FUNCTION golden.row_text(r anyelement) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT json_object_agg(key, value ORDER BY key) FROM golden.each(golden.hstore(r)));
END $$;

CREATE FUNCTION golden.identity(relid oid) RETURNS text[] LANGUAGE sql AS $$
  SELECT CASE relreplident
    WHEN 'f' THEN (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
                   WHERE attrelid = relid AND attnum > 0 AND NOT attisdropped)
    WHEN 'n' THEN NULL
    ELSE (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_index i JOIN pg_attribute ON attrelid = relid
          WHERE indrelid = relid AND attnum = ANY (i.indkey)
            AND CASE relreplident WHEN 'd' THEN indisprimary ELSE indisreplident END)
  END FROM pg_class WHERE oid = relid
$$;

-- types of our own are not told apart: their OIDs differ from server to server
CREATE FUNCTION golden.relation(relid oid, identity text[]) RETURNS json LANGUAGE sql AS $$
  SELECT json_build_object('relreplident', relreplident, 'columns', (
    SELECT json_agg(json_build_array(attname, least(atttypid::bigint, 16384), atttypmod, coalesce(attname = ANY (identity), false))
                    ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = relid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''))
  FROM pg_class WHERE oid = relid
$$;

CREATE FUNCTION golden.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO golden.note (xid, kind, origin, tab, identity, relation, old, new)
  VALUES (pg_current_xact_id()::xid, left(TG_OP, 1), nullif(current_setting('golden.origin', true), ''),
          format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), golden.identity(TG_RELID), golden.relation(TG_RELID, golden.identity(TG_RELID)),
          CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN golden.row_text(OLD) END,
          CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN golden.row_text(NEW) END);
  RETURN NULL;
END $$;

CREATE FUNCTION golden.note_message(xid xid, prefix text, content text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO golden.note (xid, kind, prefix, content) VALUES (xid, 'M', prefix, content)
$$;

CREATE FUNCTION golden.emit(prefix text, content text) RETURNS void LANGUAGE sql AS $$
  SELECT pg_logical_emit_message(true, prefix, content);
  SELECT golden.note_message(pg_current_xact_id()::xid, prefix, content);
$$;

-- named so that it fires before the triggers of foreign keys do
CREATE FUNCTION golden.audit(tab regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE TRIGGER "A note" AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
                  EXECUTE FUNCTION golden.note_change()', tab);
  EXECUTE format('CREATE TRIGGER "A note of truncate" AFTER TRUNCATE ON %s FOR EACH STATEMENT
                  EXECUTE FUNCTION golden.note_change()', tab);
END $$;
