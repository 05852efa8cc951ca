-- {lo} and {hi}: the first and the last key
INSERT INTO account SELECT g, 'v' || g, g / 7.0, g % 3 = 0 FROM generate_series({lo}, {hi}) g;
INSERT INTO line SELECT g, 'b' || g % 5, md5(g::text), repeat(md5(g::text), CASE WHEN g % 11 = 0 THEN 70 ELSE 1 END) FROM generate_series({lo}, {hi}) g;
INSERT INTO whole SELECT g, NULLIF(g % 4, 0)::text, CASE WHEN g % 9 = 0 THEN repeat(md5(g::text), 70) END FROM generate_series({lo}, {hi}) g;
INSERT INTO coded SELECT g, NULL, 'it''s \ ' || g FROM generate_series({lo}, {hi}) g;
INSERT INTO part SELECT g, g % 4, 'v' FROM generate_series({lo}, {hi}) g;
INSERT INTO "Odd ""Table" SELECT g, E'\n'' table public.x: ' || g, jsonb_build_object('k', g, 'é', NULL) FROM generate_series({lo}, {hi}) g;
INSERT INTO kinds SELECT g, g % 99, g / 3.0, 1.0 / (1 + g % 7), g * 1e20 / 3, '2024-01-01'::date + g % 1000, '2024-01-01'::timestamp + g * interval '1.000001 s', '2024-01-01 00:00+00'::timestamptz - g * interval '1 h', '00:00'::time + g * interval '1 us', g * interval '1 day 1 us', decode(md5(g::text), 'hex'), md5(g::text)::uuid, ARRAY[g, NULL, -g], ARRAY['a b', NULL, '"', g::text], '{{"a":  1}}', CASE WHEN g % 2 = 0 THEN 'sad' ELSE 'it''s ok' END::mood, (g % 16)::bit(4), int4range(g, g + 5), '10.0.0.0'::inet + g % 256, CASE WHEN g % 5 > 0 THEN 'x' END FROM generate_series({lo}, {hi}) g;
