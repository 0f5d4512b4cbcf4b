-- Partition the events by user, for hundreds of millions of them: docs/guide/cluster.md says how to run it.
-- The number of partitions cannot be changed in place. A unique index needs the column of the partition, so the primary
-- key becomes (user_id, row_id); no statement finds an event by row_id alone. Upgrades make their indexes on every partition.
BEGIN;
LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
ALTER TABLE events RENAME TO events_before;
CREATE TABLE events (LIKE events_before INCLUDING DEFAULTS) PARTITION BY HASH (user_id);
ALTER SEQUENCE events_row_id_seq OWNED BY events.row_id;
DO $$ BEGIN
  FOR n IN 0..15 LOOP
    EXECUTE format('CREATE TABLE events_%s PARTITION OF events'
                   ' FOR VALUES WITH (MODULUS 16, REMAINDER %s)', n, n);
  END LOOP;
END $$;
INSERT INTO events SELECT * FROM events_before;
DROP TABLE events_before;
ALTER TABLE events ADD PRIMARY KEY (user_id, row_id);
CREATE UNIQUE INDEX events_of_user ON events (user_id, id);
CREATE INDEX events_by_date ON events (date, row_id);
CREATE INDEX events_unnumbered ON events (user_id, row_id) WHERE id IS NULL;
CREATE INDEX events_of_container ON events (container_id, user_id, id);
CREATE INDEX events_of_type ON events (user_id, container_type, event_type, id) WHERE id IS NOT NULL;
CREATE INDEX events_of_previous_type ON events (user_id, previous_type, id)
  WHERE previous_type IS NOT NULL AND id IS NOT NULL;
CREATE INDEX events_of_kind ON events (user_id, event_type, id) WHERE id > 0;
COMMIT;
ANALYZE events;
