-- Generated from the migrations by test_catalog_schema.py: do not edit
DROP TABLE IF EXISTS alembic_version;

CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE builder (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	has_configs BOOLEAN NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_builder PRIMARY KEY (id), 
	CONSTRAINT ck_builder_name CHECK (name <> ''), 
	CONSTRAINT uq_builder_name UNIQUE (name)
);

CREATE TABLE event (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	actor TEXT NOT NULL, 
	action TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	version TEXT NOT NULL, 
	details_json TEXT NOT NULL, 
	previous_hash TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	CONSTRAINT pk_event PRIMARY KEY (id), 
	CONSTRAINT ck_event_hash CHECK (length(hash) = 64 AND length(previous_hash) = 64), 
	CONSTRAINT uq_event_hash UNIQUE (hash), 
	CONSTRAINT uq_event_previous_hash UNIQUE (previous_hash)
);

CREATE INDEX ix_event_dataset_id ON event (dataset, id);

CREATE TABLE experiment (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	description TEXT NOT NULL, 
	default_enabled BOOLEAN NOT NULL, 
	created_at DATETIME NOT NULL, 
	retired_at DATETIME, 
	CONSTRAINT pk_experiment PRIMARY KEY (id), 
	CONSTRAINT ck_experiment_name CHECK (name <> ''), 
	CONSTRAINT uq_experiment_name UNIQUE (name)
);

CREATE TABLE version_ledger (
	builder_name TEXT NOT NULL, 
	config_name TEXT NOT NULL, 
	major INTEGER NOT NULL, 
	minor INTEGER NOT NULL, 
	patch INTEGER NOT NULL, 
	content_digest TEXT NOT NULL, 
	used_at DATETIME NOT NULL, 
	used_by TEXT NOT NULL, 
	CONSTRAINT pk_version_ledger PRIMARY KEY (builder_name, config_name, major, minor, patch), 
	CONSTRAINT ck_version_ledger_content_digest CHECK (length(content_digest) = 64)
);

CREATE TABLE builder_config (
	id INTEGER NOT NULL, 
	builder_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	is_default BOOLEAN NOT NULL, 
	canonical_version_id INTEGER, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_builder_config PRIMARY KEY (id), 
	CONSTRAINT fk_builder_config_builder_id_builder FOREIGN KEY(builder_id) REFERENCES builder (id), 
	CONSTRAINT fk_builder_config_id_canonical_version_id_dataset_version FOREIGN KEY(id, canonical_version_id) REFERENCES dataset_version (config_id, id), 
	CONSTRAINT uq_builder_config_builder_id_name UNIQUE (builder_id, name)
);

CREATE UNIQUE INDEX ix_builder_config_default ON builder_config (builder_id) WHERE is_default;

CREATE TABLE dataset_version (
	id INTEGER NOT NULL, 
	config_id INTEGER NOT NULL, 
	major INTEGER NOT NULL, 
	minor INTEGER NOT NULL, 
	patch INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	state_message TEXT NOT NULL, 
	release_notes_json TEXT NOT NULL, 
	version_to_prepare TEXT, 
	slicing TEXT NOT NULL, 
	file_format TEXT NOT NULL, 
	disable_shuffling BOOLEAN NOT NULL, 
	features_json TEXT NOT NULL, 
	labels_json TEXT NOT NULL, 
	metadata_json TEXT NOT NULL, 
	location TEXT NOT NULL, 
	content_digest TEXT NOT NULL, 
	published_at DATETIME NOT NULL, 
	published_by TEXT NOT NULL, superseded_by TEXT, 
	CONSTRAINT pk_dataset_version PRIMARY KEY (id), 
	CONSTRAINT ck_dataset_version_slicing CHECK (slicing IN ('documented', 'tfds-4')), 
	CONSTRAINT ck_dataset_version_state CHECK (state IN ('supported', 'deprecated', 'yanked', 'dropped')), 
	CONSTRAINT ck_dataset_version_content_digest CHECK (length(content_digest) = 64), 
	CONSTRAINT ck_dataset_version_number CHECK (major >= 0 AND minor >= 0 AND patch >= 0), 
	CONSTRAINT fk_dataset_version_config_id_builder_config FOREIGN KEY(config_id) REFERENCES builder_config (id), 
	CONSTRAINT uq_dataset_version_config_id_id UNIQUE (config_id, id), 
	CONSTRAINT uq_dataset_version_config_id_major_minor_patch UNIQUE (config_id, major, minor, patch)
);

CREATE TABLE alias (
	id INTEGER NOT NULL, 
	config_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	version_id INTEGER NOT NULL, 
	set_at DATETIME NOT NULL, 
	set_by TEXT NOT NULL, 
	CONSTRAINT pk_alias PRIMARY KEY (id), 
	CONSTRAINT ck_alias_name CHECK (name <> ''), 
	CONSTRAINT fk_alias_config_id_version_id_dataset_version FOREIGN KEY(config_id, version_id) REFERENCES dataset_version (config_id, id), 
	CONSTRAINT fk_alias_config_id_builder_config FOREIGN KEY(config_id) REFERENCES builder_config (id), 
	CONSTRAINT uq_alias_config_id_name UNIQUE (config_id, name)
);

CREATE TABLE alias_event (
	id INTEGER NOT NULL, 
	config_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	from_version_id INTEGER, 
	to_version_id INTEGER, 
	at DATETIME NOT NULL, 
	actor TEXT NOT NULL, 
	message TEXT NOT NULL, 
	CONSTRAINT pk_alias_event PRIMARY KEY (id), 
	CONSTRAINT fk_alias_event_config_id_builder_config FOREIGN KEY(config_id) REFERENCES builder_config (id), 
	CONSTRAINT fk_alias_event_from_version_id_dataset_version FOREIGN KEY(from_version_id) REFERENCES dataset_version (id), 
	CONSTRAINT fk_alias_event_to_version_id_dataset_version FOREIGN KEY(to_version_id) REFERENCES dataset_version (id)
);

CREATE INDEX ix_alias_event_config_id_name_id ON alias_event (config_id, name, id);

CREATE TABLE split (
	id INTEGER NOT NULL, 
	version_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	num_examples BIGINT NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	num_shards INTEGER NOT NULL, 
	filename_template TEXT NOT NULL, 
	filename_dataset TEXT NOT NULL, 
	filename_format TEXT NOT NULL, 
	CONSTRAINT pk_split PRIMARY KEY (id), 
	CONSTRAINT ck_split_name CHECK (name NOT IN ('', 'all')), 
	CONSTRAINT ck_split_not_negative CHECK (position >= 0 AND num_examples >= 0 AND num_bytes >= 0 AND num_shards >= 0), 
	CONSTRAINT fk_split_version_id_dataset_version FOREIGN KEY(version_id) REFERENCES dataset_version (id), 
	CONSTRAINT uq_split_version_id_name UNIQUE (version_id, name), 
	CONSTRAINT uq_split_version_id_position UNIQUE (version_id, position)
);

CREATE TABLE version_experiment (
	version_id INTEGER NOT NULL, 
	experiment_id INTEGER NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	CONSTRAINT pk_version_experiment PRIMARY KEY (version_id, experiment_id), 
	CONSTRAINT fk_version_experiment_experiment_id_experiment FOREIGN KEY(experiment_id) REFERENCES experiment (id), 
	CONSTRAINT fk_version_experiment_version_id_dataset_version FOREIGN KEY(version_id) REFERENCES dataset_version (id)
);

CREATE INDEX ix_version_experiment_experiment_id ON version_experiment (experiment_id);

CREATE TABLE fingerprint (
	split_id INTEGER NOT NULL, 
	feature TEXT NOT NULL, 
	algorithm TEXT NOT NULL, 
	first_example BIGINT NOT NULL, 
	num_examples BIGINT NOT NULL, 
	digest TEXT NOT NULL, 
	CONSTRAINT pk_fingerprint PRIMARY KEY (split_id, feature, algorithm, first_example, num_examples), 
	CONSTRAINT ck_fingerprint_not_negative CHECK (first_example >= 0 AND num_examples >= 0), 
	CONSTRAINT fk_fingerprint_split_id_split FOREIGN KEY(split_id) REFERENCES split (id)
);

CREATE TABLE shard (
	split_id INTEGER NOT NULL, 
	shard_index INTEGER NOT NULL, 
	first_example BIGINT NOT NULL, 
	num_examples BIGINT NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	sha256 TEXT NOT NULL, entity_tag TEXT, 
	CONSTRAINT pk_shard PRIMARY KEY (split_id, shard_index), 
	CONSTRAINT ck_shard_sha256 CHECK (length(sha256) = 64), 
	CONSTRAINT ck_shard_not_negative CHECK (shard_index >= 0 AND first_example >= 0 AND num_examples >= 0 AND num_bytes >= 0), 
	CONSTRAINT fk_shard_split_id_split FOREIGN KEY(split_id) REFERENCES split (id)
)
 WITHOUT ROWID

;

CREATE INDEX ix_shard_split_id_first_example ON shard (split_id, first_example);

CREATE TRIGGER dataset_version_no_delete BEFORE DELETE ON dataset_version BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on dataset_version'); END;

CREATE TRIGGER dataset_version_no_replace BEFORE INSERT ON dataset_version WHEN EXISTS (SELECT 1 FROM dataset_version WHERE (id = NEW.id) OR (config_id = NEW.config_id AND id = NEW.id) OR (config_id = NEW.config_id AND major = NEW.major AND minor = NEW.minor AND patch = NEW.patch)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on dataset_version'); END;

CREATE TRIGGER version_experiment_no_update BEFORE UPDATE ON version_experiment BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on version_experiment'); END;

CREATE TRIGGER version_experiment_no_delete BEFORE DELETE ON version_experiment BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on version_experiment'); END;

CREATE TRIGGER version_experiment_no_replace BEFORE INSERT ON version_experiment WHEN EXISTS (SELECT 1 FROM version_experiment WHERE (version_id = NEW.version_id AND experiment_id = NEW.experiment_id)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on version_experiment'); END;

CREATE TRIGGER split_no_update BEFORE UPDATE ON split BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on split'); END;

CREATE TRIGGER split_no_delete BEFORE DELETE ON split BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on split'); END;

CREATE TRIGGER split_no_replace BEFORE INSERT ON split WHEN EXISTS (SELECT 1 FROM split WHERE (id = NEW.id) OR (version_id = NEW.version_id AND name = NEW.name) OR (version_id = NEW.version_id AND position = NEW.position)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on split'); END;

CREATE TRIGGER shard_no_update BEFORE UPDATE ON shard BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on shard'); END;

CREATE TRIGGER shard_no_delete BEFORE DELETE ON shard BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on shard'); END;

CREATE TRIGGER shard_no_replace BEFORE INSERT ON shard WHEN EXISTS (SELECT 1 FROM shard WHERE (split_id = NEW.split_id AND shard_index = NEW.shard_index)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on shard'); END;

CREATE TRIGGER fingerprint_no_update BEFORE UPDATE ON fingerprint BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on fingerprint'); END;

CREATE TRIGGER fingerprint_no_delete BEFORE DELETE ON fingerprint BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on fingerprint'); END;

CREATE TRIGGER fingerprint_no_replace BEFORE INSERT ON fingerprint WHEN EXISTS (SELECT 1 FROM fingerprint WHERE (split_id = NEW.split_id AND feature = NEW.feature AND algorithm = NEW.algorithm AND first_example = NEW.first_example AND num_examples = NEW.num_examples)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on fingerprint'); END;

CREATE TRIGGER version_ledger_no_update BEFORE UPDATE ON version_ledger BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on version_ledger'); END;

CREATE TRIGGER version_ledger_no_delete BEFORE DELETE ON version_ledger BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on version_ledger'); END;

CREATE TRIGGER version_ledger_no_replace BEFORE INSERT ON version_ledger WHEN EXISTS (SELECT 1 FROM version_ledger WHERE (builder_name = NEW.builder_name AND config_name = NEW.config_name AND major = NEW.major AND minor = NEW.minor AND patch = NEW.patch)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on version_ledger'); END;

CREATE TRIGGER alias_event_no_update BEFORE UPDATE ON alias_event BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on alias_event'); END;

CREATE TRIGGER alias_event_no_delete BEFORE DELETE ON alias_event BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on alias_event'); END;

CREATE TRIGGER alias_event_no_replace BEFORE INSERT ON alias_event WHEN EXISTS (SELECT 1 FROM alias_event WHERE (id = NEW.id)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on alias_event'); END;

CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on event'); END;

CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on event'); END;

CREATE TRIGGER event_no_replace BEFORE INSERT ON event WHEN EXISTS (SELECT 1 FROM event WHERE (id = NEW.id) OR (hash = NEW.hash) OR (previous_hash = NEW.previous_hash)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on event'); END;

CREATE INDEX ix_shard_empty ON shard (split_id, shard_index, num_examples) WHERE num_examples = 0;

CREATE TABLE search_document (
	config_id INTEGER NOT NULL, 
	version_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	features TEXT NOT NULL, 
	description TEXT NOT NULL, 
	details TEXT NOT NULL, 
	CONSTRAINT pk_search_document PRIMARY KEY (config_id), 
	CONSTRAINT fk_search_document_config_id_version_id_dataset_version FOREIGN KEY(config_id, version_id) REFERENCES dataset_version (config_id, id)
);

CREATE VIRTUAL TABLE search_index USING fts5(name, tags, features, description, details, content='search_document', content_rowid='config_id', tokenize='ascii', prefix='1 2 3', detail='column', columnsize=0);

CREATE TRIGGER search_document_insert AFTER INSERT ON search_document BEGIN INSERT INTO search_index(rowid, name, tags, features, description, details) VALUES (NEW.config_id, NEW.name, NEW.tags, NEW.features, NEW.description, NEW.details); END;

CREATE TRIGGER search_document_delete AFTER DELETE ON search_document BEGIN INSERT INTO search_index(search_index, rowid, name, tags, features, description, details) VALUES ('delete', OLD.config_id, OLD.name, OLD.tags, OLD.features, OLD.description, OLD.details); END;

CREATE TRIGGER search_document_update AFTER UPDATE ON search_document BEGIN INSERT INTO search_index(search_index, rowid, name, tags, features, description, details) VALUES ('delete', OLD.config_id, OLD.name, OLD.tags, OLD.features, OLD.description, OLD.details); INSERT INTO search_index(rowid, name, tags, features, description, details) VALUES (NEW.config_id, NEW.name, NEW.tags, NEW.features, NEW.description, NEW.details); END;

CREATE INDEX ix_dataset_version_readable ON dataset_version (config_id, major, minor, patch, state) WHERE state NOT IN ('yanked', 'dropped');

CREATE TABLE reservation (
	id INTEGER NOT NULL, 
	location TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	version TEXT NOT NULL, 
	content_digest TEXT NOT NULL, 
	token TEXT NOT NULL, 
	is_cleaning BOOLEAN NOT NULL, 
	owners_json TEXT NOT NULL, 
	found_json TEXT, 
	reserved_at DATETIME NOT NULL, 
	CONSTRAINT pk_reservation PRIMARY KEY (id), 
	CONSTRAINT ck_reservation_content_digest CHECK (length(content_digest) = 64), 
	CONSTRAINT uq_reservation_location UNIQUE (location)
);

CREATE TABLE protection (
	scope TEXT NOT NULL, 
	protected_at DATETIME NOT NULL, 
	protected_by TEXT NOT NULL, two_persons BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_protection PRIMARY KEY (scope)
);

CREATE TABLE version_location (
	id INTEGER NOT NULL, 
	version_id INTEGER NOT NULL, 
	change TEXT NOT NULL, 
	location TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_version_location PRIMARY KEY (id), 
	CONSTRAINT ck_version_location_change CHECK (change IN ('add', 'first', 'remove')), 
	CONSTRAINT fk_version_location_version_id_dataset_version FOREIGN KEY(version_id) REFERENCES dataset_version (id)
);

CREATE INDEX ix_version_location_version_id_id ON version_location (version_id, id);

CREATE INDEX ix_version_location_location ON version_location (location);

CREATE TRIGGER version_location_no_update BEFORE UPDATE ON version_location BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on version_location'); END;

CREATE TRIGGER version_location_no_delete BEFORE DELETE ON version_location BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on version_location'); END;

CREATE TRIGGER version_location_no_replace BEFORE INSERT ON version_location WHEN EXISTS (SELECT 1 FROM version_location WHERE (id = NEW.id)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on version_location'); END;

CREATE TABLE corrected_time (
	event_id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	corrected_by INTEGER NOT NULL, 
	CONSTRAINT pk_corrected_time PRIMARY KEY (event_id)
);

CREATE TRIGGER event_continues BEFORE INSERT ON event
WHEN NEW.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM event)
    OR NEW.previous_hash IS NOT coalesce((SELECT hash FROM event ORDER BY id DESC LIMIT 1), printf('%064d', 0))
    OR length(CAST(NEW.hash AS blob)) <> 64 OR NEW.hash GLOB '*[^0-9a-f]*' OR NEW.hash = printf('%064d', 0)
    OR NEW.at NOT GLOB '????-??-?? ??:??:??.[0-9][0-9][0-9][0-9][0-9][0-9]'
    OR NEW.at IS NOT strftime('%Y-%m-%d %H:%M:%S', substr(NEW.at, 1, 19), '+0 days') || substr(NEW.at, 20)
    OR NEW.at NOT BETWEEN '0001-01-02' AND '9999-12-30'
    OR NOT json_valid(NEW.details_json) OR json_type(NEW.details_json) <> 'object'
    OR NEW.details_json GLOB '*[^ -~]*'
    OR 'blob' IN (typeof(NEW.actor), typeof(NEW.action), typeof(NEW.dataset), typeof(NEW.version), typeof(NEW.hash))
    OR instr(CAST(NEW.actor || NEW.action || NEW.dataset || NEW.version || NEW.details_json AS blob), x'00')
    OR EXISTS (
        SELECT 1
        FROM (SELECT NEW.actor || ' ' || NEW.action || ' ' || NEW.dataset || ' ' || NEW.version || ' ' AS texts),
            json_each('[0' || replace(hex(zeroblob(length(texts))), '00', ',0') || ']')
        WHERE char(unicode(substr(texts, key + 1, 1))) IS NOT substr(texts, key + 1, 1)
            AND key < length(texts) AND hex(substr(texts, key + 1, 1)) NOT IN ('EFBFBE', 'EFBFBF')
    )
BEGIN SELECT RAISE(ABORT, 'an event continues the log: number, hashes, time and details'); END;

CREATE TABLE attachment (
	version_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	sha256 TEXT NOT NULL, 
	added_at DATETIME NOT NULL, 
	added_by TEXT NOT NULL, 
	CONSTRAINT pk_attachment PRIMARY KEY (version_id, kind, name), 
	CONSTRAINT ck_attachment_name CHECK (kind <> '' AND name <> ''), 
	CONSTRAINT ck_attachment_not_negative CHECK (num_bytes >= 0), 
	CONSTRAINT ck_attachment_sha256 CHECK (length(sha256) = 64), 
	CONSTRAINT fk_attachment_version_id_dataset_version FOREIGN KEY(version_id) REFERENCES dataset_version (id)
);

CREATE TRIGGER attachment_no_update BEFORE UPDATE ON attachment BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on attachment'); END;

CREATE TRIGGER attachment_no_delete BEFORE DELETE ON attachment BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on attachment'); END;

CREATE TRIGGER attachment_no_replace BEFORE INSERT ON attachment WHEN EXISTS (SELECT 1 FROM attachment WHERE (version_id = NEW.version_id AND kind = NEW.kind AND name = NEW.name)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on attachment'); END;

CREATE TRIGGER dataset_version_no_update BEFORE UPDATE ON dataset_version WHEN NEW.id IS NOT OLD.id OR NEW.config_id IS NOT OLD.config_id OR NEW.major IS NOT OLD.major OR NEW.minor IS NOT OLD.minor OR NEW.patch IS NOT OLD.patch OR NEW.release_notes_json IS NOT OLD.release_notes_json OR NEW.version_to_prepare IS NOT OLD.version_to_prepare OR NEW.slicing IS NOT OLD.slicing OR NEW.file_format IS NOT OLD.file_format OR NEW.disable_shuffling IS NOT OLD.disable_shuffling OR NEW.features_json IS NOT OLD.features_json OR NEW.labels_json IS NOT OLD.labels_json OR NEW.location IS NOT OLD.location OR NEW.content_digest IS NOT OLD.content_digest OR NEW.published_at IS NOT OLD.published_at OR NEW.published_by IS NOT OLD.published_by BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on dataset_version'); END;

CREATE TABLE dataset_name (
	name TEXT NOT NULL, 
	builder_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	CONSTRAINT pk_dataset_name PRIMARY KEY (name), 
	CONSTRAINT ck_dataset_name_name CHECK (name <> ''), 
	CONSTRAINT ck_dataset_name_not_negative CHECK (position >= 0), 
	CONSTRAINT fk_dataset_name_builder_id_builder FOREIGN KEY(builder_id) REFERENCES builder (id), 
	CONSTRAINT uq_dataset_name_builder_id_position UNIQUE (builder_id, position)
);

CREATE TRIGGER dataset_name_no_update BEFORE UPDATE ON dataset_name BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on dataset_name'); END;

CREATE TRIGGER dataset_name_no_delete BEFORE DELETE ON dataset_name BEGIN SELECT RAISE(ABORT, 'published rows never change: DELETE on dataset_name'); END;

CREATE TRIGGER dataset_name_no_replace BEFORE INSERT ON dataset_name WHEN EXISTS (SELECT 1 FROM dataset_name WHERE (name = NEW.name) OR (builder_id = NEW.builder_id AND position = NEW.position)) BEGIN SELECT RAISE(ABORT, 'published rows never change: REPLACE on dataset_name'); END;

CREATE TABLE refusal (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	token TEXT, 
	principal TEXT NOT NULL, 
	call TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_refusal PRIMARY KEY (id)
);

CREATE TABLE kept_answer (
	"key" TEXT NOT NULL, 
	principal TEXT NOT NULL, 
	call TEXT NOT NULL, 
	request_digest TEXT NOT NULL, 
	status INTEGER NOT NULL, 
	answer BLOB NOT NULL, 
	kept_at DATETIME NOT NULL, 
	CONSTRAINT pk_kept_answer PRIMARY KEY ("key"), 
	CONSTRAINT ck_kept_answer_key CHECK (length(key) BETWEEN 1 AND 200)
);

CREATE INDEX ix_kept_answer_kept_at ON kept_answer (kept_at);

CREATE TABLE webhook (
	id TEXT NOT NULL, 
	url TEXT NOT NULL, 
	datasets_json TEXT NOT NULL, 
	actions_json TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	created_by TEXT NOT NULL, 
	delivered_through INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	failing_since DATETIME, 
	next_try_at DATETIME, 
	last_error TEXT NOT NULL, 
	disabled_at DATETIME, 
	disabled_because TEXT, 
	leased_by TEXT, 
	leased_until DATETIME, 
	CONSTRAINT pk_webhook PRIMARY KEY (id), 
	CONSTRAINT ck_webhook_id CHECK (length(id) = 12), 
	CONSTRAINT ck_webhook_delivered_through CHECK (delivered_through >= 0)
);

CREATE TABLE access_token (
	id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	name TEXT NOT NULL, 
	role TEXT NOT NULL, 
	datasets_json TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	created_by TEXT NOT NULL, 
	expires_at DATETIME, 
	last_used_at DATETIME, 
	revoked_at DATETIME, 
	revoked_by TEXT, 
	CONSTRAINT pk_access_token PRIMARY KEY (id), 
	CONSTRAINT ck_access_token_id CHECK (length(id) = 12), 
	CONSTRAINT ck_access_token_digest CHECK (length(digest) = 64), 
	CONSTRAINT ck_access_token_name CHECK (name <> ''), 
	CONSTRAINT ck_access_token_role CHECK (role IN ('reader', 'publisher', 'maintainer', 'admin')), 
	CONSTRAINT uq_access_token_digest UNIQUE (digest)
);

INSERT INTO alembic_version VALUES ('0016');
