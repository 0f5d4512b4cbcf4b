CREATE TABLE access_lists (
  container_id BYTEA NOT NULL,
  access_version BIGINT NOT NULL,
  entries BYTEA NOT NULL,
  PRIMARY KEY (container_id, access_version)
);
CREATE TABLE accesses (
  container_id BYTEA NOT NULL,
  user_id BYTEA NOT NULL,
  recorded_at BIGINT NOT NULL,
  PRIMARY KEY (container_id, user_id)
);
CREATE INDEX accesses_of_user ON accesses (user_id);
CREATE TABLE api_keys (
  key_hash BYTEA NOT NULL,
  name VARCHAR(256) NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (key_hash)
);
CREATE TABLE authors (
  container_id BYTEA NOT NULL,
  user_id BYTEA NOT NULL,
  PRIMARY KEY (container_id, user_id)
);
CREATE INDEX authors_of_user ON authors (user_id);
CREATE TABLE blocks (
  user_id BYTEA NOT NULL,
  blocked_id BYTEA NOT NULL,
  PRIMARY KEY (user_id, blocked_id)
);
CREATE INDEX blocks_of_blocked ON blocks (blocked_id);
CREATE TABLE checks (
  name VARCHAR(32) NOT NULL,
  value BYTEA NOT NULL,
  PRIMARY KEY (name)
);
CREATE TABLE chunks (
  part_id BYTEA NOT NULL,
  chunk INTEGER NOT NULL,
  size BIGINT NOT NULL,
  chunk_hash BYTEA NOT NULL,
  blob VARCHAR(128) NOT NULL,
  hashes BYTEA NOT NULL,
  PRIMARY KEY (part_id, chunk)
);
CREATE TABLE containers (
  id BYTEA NOT NULL,
  version BIGINT NOT NULL,
  governing_version BIGINT NOT NULL,
  access_version BIGINT NOT NULL,
  governing_bytes BIGINT NOT NULL,
  type_salt BYTEA,
  type VARCHAR(256),
  deleted BOOLEAN NOT NULL,
  creator_id BYTEA,
  PRIMARY KEY (id)
);
CREATE INDEX containers_of_creator ON containers (creator_id);
CREATE TABLE containers_to_purge (
  container_id BYTEA NOT NULL,
  version BIGINT NOT NULL,
  deleted_at BIGINT NOT NULL,
  past_version BIGINT NOT NULL,
  past_user BYTEA NOT NULL,
  PRIMARY KEY (container_id)
);
CREATE TABLE departures (
  container_id BYTEA NOT NULL,
  access_version BIGINT NOT NULL,
  user_id BYTEA NOT NULL,
  body BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  PRIMARY KEY (container_id, access_version, user_id)
);
CREATE TABLE pending_blobs (
  name VARCHAR(128) NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (name)
);
CREATE INDEX pending_blobs_by_age ON pending_blobs (since);
CREATE TABLE pending_users (
  user_id BYTEA NOT NULL,
  PRIMARY KEY (user_id)
);
CREATE TABLE events (
  row_id BIGSERIAL NOT NULL,
  user_id BYTEA NOT NULL,
  id BIGINT,
  event_type VARCHAR(16) NOT NULL,
  container_id BYTEA NOT NULL,
  container_type VARCHAR(256),
  date BIGINT NOT NULL,
  version BIGINT NOT NULL,
  related_user_id BYTEA,
  application VARCHAR(256) NOT NULL,
  changes SMALLINT NOT NULL,
  previous_type VARCHAR(256),
  salt BYTEA,
  details_hash BYTEA,
  PRIMARY KEY (row_id)
);
CREATE INDEX events_unnumbered ON events (user_id, row_id) WHERE id IS NULL;
CREATE UNIQUE INDEX events_of_user ON events (user_id, id);
CREATE INDEX events_of_type ON events (user_id, container_type, event_type, id) WHERE id IS NOT NULL;
CREATE INDEX events_of_previous_type ON events (user_id, previous_type, id) WHERE previous_type IS NOT NULL AND id IS NOT NULL;
CREATE INDEX events_of_kind ON events (user_id, event_type, id) WHERE id > 0;
CREATE INDEX events_of_container ON events (container_id, user_id, id);
CREATE INDEX events_by_date ON events (date, row_id);
CREATE TABLE guesses (
  bucket BYTEA NOT NULL,
  guesses BIGINT NOT NULL,
  ends_at BIGINT NOT NULL,
  PRIMARY KEY (bucket)
);
CREATE INDEX guesses_by_end ON guesses (ends_at);
CREATE TABLE key_files (
  user_id BYTEA NOT NULL,
  key_file BYTEA NOT NULL,
  verifier BYTEA NOT NULL,
  reminder VARCHAR(1024) NOT NULL,
  PRIMARY KEY (user_id)
);
CREATE TABLE key_records (
  user_id BYTEA NOT NULL,
  sequence INTEGER NOT NULL,
  body BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  PRIMARY KEY (user_id, sequence)
);
CREATE TABLE members (
  container_id BYTEA NOT NULL,
  user_id BYTEA NOT NULL,
  permissions SMALLINT NOT NULL,
  key_index SMALLINT NOT NULL,
  expires_at BIGINT,
  wrap BYTEA,
  expiry_recorded BOOLEAN NOT NULL,
  type VARCHAR(256),
  PRIMARY KEY (container_id, user_id)
);
CREATE INDEX members_expiring ON members (user_id, expires_at) WHERE expires_at IS NOT NULL AND NOT expiry_recorded;
CREATE INDEX members_listed ON members (user_id, container_id) WHERE permissions > 0 AND NOT expiry_recorded;
CREATE INDEX members_not_listed ON members (user_id) WHERE NOT (permissions > 0 AND NOT expiry_recorded);
CREATE INDEX members_listed_of_type ON members (user_id, type, container_id) WHERE type IS NOT NULL AND permissions > 0 AND NOT expiry_recorded;
CREATE TABLE nonces (
  nonce_hash BYTEA NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (nonce_hash)
);
CREATE INDEX nonces_by_expiry ON nonces (expires_at);
CREATE TABLE parts (
  part_id BYTEA NOT NULL,
  container_id BYTEA NOT NULL,
  user_id BYTEA NOT NULL,
  touched_at BIGINT NOT NULL,
  committed BOOLEAN NOT NULL,
  replaced_at BIGINT,
  received BIGINT NOT NULL,
  session BYTEA,
  inline BYTEA,
  hashes BYTEA,
  PRIMARY KEY (part_id)
);
CREATE INDEX parts_replaced ON parts (replaced_at);
CREATE INDEX parts_pending ON parts (user_id) WHERE NOT committed;
CREATE INDEX parts_of_container ON parts (container_id);
CREATE INDEX parts_in_force ON parts (container_id, part_id) WHERE committed AND replaced_at IS NULL;
CREATE INDEX parts_begun ON parts (touched_at) WHERE NOT committed;
CREATE TABLE records (
  container_id BYTEA NOT NULL,
  version BIGINT NOT NULL,
  governing BOOLEAN NOT NULL,
  body BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  PRIMARY KEY (container_id, version)
);
CREATE INDEX records_governing ON records (container_id, version) WHERE governing;
CREATE TABLE sessions (
  token_hash BYTEA NOT NULL,
  user_id BYTEA NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (token_hash)
);
CREATE INDEX sessions_of_user ON sessions (user_id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE TABLE users (
  id BYTEA NOT NULL,
  fingerprint BYTEA,
  chain_length BIGINT NOT NULL,
  encryption_index BIGINT NOT NULL,
  signing_sequence BIGINT NOT NULL,
  signed_until BIGINT NOT NULL,
  registered_at BIGINT NOT NULL,
  deleted BOOLEAN NOT NULL,
  last_event BIGINT NOT NULL,
  first_event BIGINT NOT NULL,
  dropped_digest BYTEA,
  key_file_generation BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
  version_num VARCHAR(32) NOT NULL PRIMARY KEY
);
INSERT INTO alembic_version VALUES ('0010');
