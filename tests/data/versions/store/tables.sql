CREATE TABLE IF NOT EXISTS `boot`
(
    `replica` LowCardinality(String) COMMENT 'name of the serving replica [1]',
    `boot` String COMMENT 'this start of it, a random identifier [1]',
    `started_at` DateTime64(9, 'UTC') COMMENT 'when the hook attached [ns]',
    `host` LowCardinality(String) COMMENT 'machine that it runs on [1]',
    `engine` LowCardinality(String) COMMENT 'serving engine [1]',
    `engine_version` LowCardinality(String) COMMENT 'version of the engine [1]',
    `hook_version` LowCardinality(String) COMMENT 'version of this hook [1]',
    `epoch` LowCardinality(String) COMMENT 'hash of engine, versions, models and hardware; evidence never crosses it [1]',
    `target` LowCardinality(String) COMMENT 'target model [1]',
    `draft` LowCardinality(Nullable(String)) COMMENT 'draft model, where there is one [1]',
    `quantisation` LowCardinality(Nullable(String)) COMMENT 'of the target\'s weights [1]',
    `method` LowCardinality(String) COMMENT 'speculation: none, draft_model, ngram, eagle, mtp and so on [1]',
    `k_max` UInt8 COMMENT 'longest draft that the engine can run [tokens]',
    `k_schedule` LowCardinality(Nullable(String)) COMMENT 'draft lengths by batch size that the engine was started with, in its own words; none where it has a single one [1]',
    `tensor_parallel` UInt16 COMMENT 'size of the tensor-parallel group [1]',
    `pipeline_parallel` UInt16 COMMENT 'number of pipeline stages [1]',
    `data_parallel` UInt16 COMMENT 'number of data-parallel ranks [1]',
    `expert_parallel` UInt16 COMMENT 'size of the expert-parallel group [1]',
    `rank` UInt16 COMMENT 'data-parallel rank of this process [1]',
    `role` LowCardinality(String) COMMENT 'prefill, decode or both [1]',
    `gpu_uuids` Array(String) COMMENT 'devices that it runs on; none on a CPU [1]',
    `gpu_type` LowCardinality(Nullable(String)) COMMENT 'name of the device [1]',
    `driver` LowCardinality(Nullable(String)) COMMENT 'version of the device\'s driver [1]',
    `parameters` Nullable(UInt64) COMMENT 'of the target [1]',
    `active_parameters` Nullable(UInt64) COMMENT 'of the target, for one token [1]',
    `bytes_per_weight` Nullable(Float32) COMMENT 'of the target, as it is stored on the device [bytes]',
    `kv_bytes_per_token` Nullable(UInt32) COMMENT 'of the target\'s cache, all layers [bytes]',
    `layers` Nullable(UInt16) COMMENT 'of the target [1]',
    `experts` Nullable(UInt16) COMMENT 'of the target; unknown or none for a dense model [1]',
    `draft_parameters` Nullable(UInt64) COMMENT 'of the draft model [1]',
    `draft_bytes_per_weight` Nullable(Float32) COMMENT 'of the draft model [bytes]',
    `draft_kv_bytes_per_token` Nullable(UInt32) COMMENT 'of the draft model\'s cache, all layers [bytes]',
    `price_per_hour` Nullable(Float64) COMMENT 'of the replica, where the operator gave it [currency]',
    `ended_at` Nullable(DateTime64(9, 'UTC')) COMMENT 'when the sidecar saw that it had ended as it should, with nothing left behind; unknown while it runs, and for ever where its tail is unknown [ns]'
)
ENGINE = ReplacingMergeTree()
ORDER BY (replica, boot)
SETTINGS non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'One start of one serving process, with everything that defines it';

CREATE TABLE IF NOT EXISTS `round`
(
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `seq` UInt64 COMMENT 'record number within the boot; rises on drops too, so a loss is a gap [1]',
    `started_at` DateTime64(9, 'UTC') COMMENT 'when the round began [ns]',
    `policy` Nullable(UInt32) COMMENT 'policy in force [1]',
    `pair` Nullable(UInt32) COMMENT 'pair of blocks that it belongs to [1]',
    `arm` LowCardinality(Nullable(String)) COMMENT 'arm that ran [1]',
    `block_age_ms` Nullable(UInt32) COMMENT 'since the block began [ms]',
    `waiting` UInt32 COMMENT 'queued and not yet running [requests]',
    `timing_source` LowCardinality(String) COMMENT 'clock of the parts: host, cuda or engine [1]',
    `wall_us` Nullable(Float32) COMMENT 'from the end of the round before, or its own start after idling, to its end [us]',
    `draft_us` Nullable(Float32) COMMENT 'draft model [us]',
    `verify_us` Nullable(Float32) COMMENT 'target forward [us]',
    `sample_us` Nullable(Float32) COMMENT 'acceptance, sampling and bookkeeping [us]',
    `idle_us` Nullable(Float32) COMMENT 'device idle between the parts [us]',
    `catchup_us` Nullable(Float32) COMMENT 'draft prefill after rounds at k = 0 [us]',
    `prefill_us` Nullable(Float32) COMMENT 'target prefill inside the round\'s wall time [us]',
    `prefill_tokens` UInt32 COMMENT 'prompt tokens computed within the round [tokens]',
    `padded_tokens` UInt32 COMMENT 'query positions computed for nobody [tokens]',
    `invalid` UInt32 COMMENT 'proposals that a grammar refused before the verify pass [tokens]',
    `preempted` UInt16 COMMENT 'put back into the queue in the round [requests]',
    `batch` UInt32 COMMENT 'in the round [sequences]',
    `k` UInt8 COMMENT 'longest draft in the round; 0 is a target-only step [tokens]',
    `n_q` UInt32 COMMENT 'query tokens of the verify pass, sum of k + 1 [tokens]',
    `n_kv` UInt64 COMMENT 'sum of contexts [tokens]',
    `proposed` UInt32 COMMENT 'draft tokens offered [tokens]',
    `accepted` UInt32 COMMENT 'leading ones kept; correction or bonus not counted [tokens]',
    `emitted` UInt32 COMMENT 'really came out [tokens]',
    `model_bytes` Nullable(UInt64) COMMENT 'that the round had to move, from the model card [bytes]',
    `dram_active` Nullable(Float32) COMMENT 'share of time the device\'s memory was busy, in the enclosing sample [1]',
    `dram_window_ms` Nullable(Float32) COMMENT 'length of that sample; it never resolves one round [ms]',
    `classes` Array(LowCardinality(String)) COMMENT 'classes in the batch [1]',
    `class_sequences` Array(UInt32) COMMENT 'of each class [sequences]',
    `class_proposed` Array(UInt32) COMMENT 'proposed for each class [tokens]',
    `class_accepted` Array(UInt32) COMMENT 'accepted for each class [tokens]',
    `class_emitted` Array(UInt32) COMMENT 'emitted for each class [tokens]',
    `class_context` Array(UInt64) COMMENT 'sum of contexts of each class [tokens]',
    INDEX by_time `started_at` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree()
PARTITION BY toDate(started_at)
ORDER BY (toStartOfHour(started_at), replica, boot, seq)
TTL toDateTime(started_at) + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'One round of the running batch, as stored: scalars, sums, and sums by class';

CREATE TABLE IF NOT EXISTS `request_part`
(
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `request` UInt64 COMMENT 'salted hash of the request\'s id [1]',
    `first_seq` UInt64 COMMENT 'record number of its first round here [1]',
    `last_seq` UInt64 COMMENT 'record number of its last round here [1]',
    `started_at` DateTime64(9, 'UTC') COMMENT 'when its first round here began [ns]',
    `class` LowCardinality(String) COMMENT 'operator\'s label of the request [1]',
    `policy` Nullable(UInt32) COMMENT 'policy in force [1]',
    `pair` Nullable(UInt32) COMMENT 'pair of blocks [1]',
    `arm` LowCardinality(Nullable(String)) COMMENT 'arm that ran [1]',
    `context` UInt32 COMMENT 'in its KV cache when its first round here began [tokens]',
    `rounds` UInt32 COMMENT 'it took part in here [rounds]',
    `k` Array(UInt8) COMMENT 'draft length, by round [tokens]',
    `accepted` Array(UInt8) COMMENT 'leading proposals kept, by round [tokens]',
    `emitted` Array(UInt8) COMMENT 'really came out, by round; empty where always accepted + 1 [tokens]',
    `end` LowCardinality(String) COMMENT 'how it ended here: none, eos, length, stop, abort, preempt [1]',
    `gap_bins` Array(Int16) COMMENT 'log-histogram of the time between its rounds: bin = ceil(ln(ms) / ln(1.01 / 0.99)) [1]',
    `gap_counts` Array(UInt32) COMMENT 'rounds in each bin [1]',
    INDEX by_time `started_at` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree()
PARTITION BY toDate(started_at)
ORDER BY (toStartOfHour(started_at), replica, boot, request, first_seq)
TTL toDateTime(started_at) + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'A request\'s rounds within one shipped batch; a part never crosses a block';

CREATE TABLE IF NOT EXISTS `request`
(
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `request` UInt64 COMMENT 'salted hash of the request\'s id [1]',
    `seq` UInt64 COMMENT 'record number within the boot; the later row stands [1]',
    `class` LowCardinality(String) COMMENT 'operator\'s label of the request [1]',
    `session` Nullable(UInt64) COMMENT 'salted hash of the session [1]',
    `admitted_at` DateTime64(9, 'UTC') COMMENT 'when the engine took it in [ns]',
    `ended_at` Nullable(DateTime64(9, 'UTC')) COMMENT 'when it ended; unknown while it runs [ns]',
    `policy` Nullable(UInt32) COMMENT 'policy in force at admission [1]',
    `pair` Nullable(UInt32) COMMENT 'pair at admission [1]',
    `last_pair` Nullable(UInt32) COMMENT 'pair at the end [1]',
    `arm` LowCardinality(Nullable(String)) COMMENT 'arm at admission [1]',
    `prompt_tokens` UInt32 COMMENT 'length of the prompt [tokens]',
    `cached_tokens` Nullable(UInt32) COMMENT 'of these found in a prefix cache [tokens]',
    `requested_output` Nullable(UInt32) COMMENT 'most that the client asked for [tokens]',
    `output_tokens` Nullable(UInt32) COMMENT 'came out [tokens]',
    `temperature` Float32 COMMENT 'of sampling; 0 is greedy [1]',
    `top_p` Float32 COMMENT 'of nucleus sampling; 1 is off [1]',
    `guided` Bool COMMENT 'a grammar constrains the output [1]',
    `adapter` LowCardinality(Nullable(String)) COMMENT 'LoRA adapter [1]',
    `queue_ms` Nullable(Float32) COMMENT 'from arrival to the first work on it [ms]',
    `prefill_ms` Nullable(Float32) COMMENT 'of prompt work [ms]',
    `ttft_ms` Nullable(Float32) COMMENT 'from arrival to the first token [ms]',
    `decode_ms` Nullable(Float32) COMMENT 'from the first token to the last [ms]',
    `e2e_ms` Nullable(Float32) COMMENT 'from arrival to the end [ms]',
    `preemptions` Nullable(UInt32) COMMENT 'times it was put back into the queue [1]',
    `reason` LowCardinality(String) COMMENT 'how it ended: none while it runs, eos, length, stop, abort [1]',
    `digest` Nullable(UInt64) COMMENT 'of the output token ids [1]',
    `content` Nullable(UInt64) COMMENT 'salted digest of the prompt and all that shapes its output; requests that share it must have the same output; unknown where chance decides the output [1]',
    INDEX by_time `admitted_at` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq)
PARTITION BY toDate(admitted_at)
ORDER BY (toStartOfHour(admitted_at), class, replica, boot, request)
TTL toDateTime(admitted_at) + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'A request: one row at admission, replaced by one at its end';

CREATE TABLE IF NOT EXISTS `device`
(
    `replica` LowCardinality(String) COMMENT 'serving replica on the same machine [1]',
    `sampled_at` DateTime64(9, 'UTC') COMMENT 'end of the window [ns]',
    `window_ms` Nullable(Float32) COMMENT 'that the value is a mean over; unknown for an instant [ms]',
    `uuid` LowCardinality(String) COMMENT 'device; empty where none is visible [1]',
    `gpu_instance` Nullable(UInt32) COMMENT 'MIG instance [1]',
    `field` LowCardinality(String) COMMENT 'what was read, such as dram_active, sm_active, power [1]',
    `value` Nullable(Float64) COMMENT 'in its unit [1]',
    `unit` LowCardinality(String) COMMENT 'of the value [1]',
    `reason` LowCardinality(String) COMMENT 'why there is no value; empty where there is one [1]',
    INDEX by_time `sampled_at` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree()
PARTITION BY toDate(sampled_at)
ORDER BY (toStartOfHour(sampled_at), replica, uuid, field, sampled_at)
TTL toDateTime(sampled_at) + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'One value read from one device, or the reason why there is none';

CREATE TABLE IF NOT EXISTS `policy`
(
    `policy` UInt32 COMMENT 'number; rises [1]',
    `created_at` DateTime64(9, 'UTC') COMMENT 'when it was written [ns]',
    `kind` LowCardinality(String) COMMENT 'cohort, blocks or table [1]',
    `seed` UInt64 COMMENT 'key of the hash that draws the order of arms [1]',
    `arms` Array(LowCardinality(String)) COMMENT 'arms that it draws from [1]',
    `block_ms` Nullable(UInt32) COMMENT 'length of a block; unknown for cohorts [ms]',
    `burn_in_ms` Nullable(UInt32) COMMENT 'of each block that no estimate uses [ms]',
    `first_pair` UInt32 COMMENT 'pair that it takes effect with [1]',
    `table` String COMMENT 'gate table, JSON [1]',
    `note` String COMMENT 'who wrote it, and why [1]'
)
ENGINE = ReplacingMergeTree()
ORDER BY policy
SETTINGS non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'An immutable, numbered policy: what ran where, and since when';

CREATE TABLE IF NOT EXISTS `loss`
(
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `lost_at` DateTime64(9, 'UTC') COMMENT 'when the loss was seen [ns]',
    `table` LowCardinality(String) COMMENT 'records of which kind; `ring` where the kind is not known [1]',
    `reason` LowCardinality(String) COMMENT 'see LOSS_REASONS [1]',
    `first_seq` Nullable(UInt64) COMMENT 'record number of the first one lost [1]',
    `count` Nullable(UInt64) COMMENT 'lost; unknown for an unknown tail [records]',
    `detail` String COMMENT 'for a person [1]'
)
ENGINE = ReplacingMergeTree()
ORDER BY (replica, boot, reason, `table`, ifNull(first_seq, 0), if(first_seq IS NULL, lost_at, toDateTime64(0, 9, 'UTC')))
SETTINGS non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'Records that exist nowhere else any more, and why';

CREATE TABLE IF NOT EXISTS `batch`
(
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `number` UInt64 COMMENT 'of the batch within the boot, from 1 [1]',
    `first_seq` UInt64 COMMENT 'first record number that it accounts for [1]',
    `next_seq` UInt64 COMMENT 'record number that follows its last [1]',
    `rounds` UInt32 COMMENT 'of round in it [rows]',
    `request_parts` UInt32 COMMENT 'of request_part in it [rows]',
    `requests` UInt32 COMMENT 'of request in it [rows]',
    `losses` UInt32 COMMENT 'of loss in it [rows]',
    `stored_at` DateTime64(9, 'UTC') COMMENT 'when the store had it [ns]',
    INDEX by_time `stored_at` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(stored_at)
ORDER BY (replica, boot, number)
TTL toDateTime(stored_at) + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100
COMMENT 'The ledger: a batch that the store has, whole';

CREATE TABLE IF NOT EXISTS `block_time`
(
    `epoch` LowCardinality(String) COMMENT 'hash of engine, versions, models and hardware; empty where the boot is not known [1]',
    `policy` UInt32 COMMENT 'policy in force [1]',
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `pair` UInt32 COMMENT 'pair of blocks [1]',
    `arm` LowCardinality(String) COMMENT 'arm that ran [1]',
    `requests` UInt64 COMMENT 'admitted in it [requests]',
    `rounds` UInt64 COMMENT 'in it [rounds]',
    `request_rounds` UInt64 COMMENT 'sum of batch over its rounds [rounds]',
    `classes` Array(LowCardinality(String)) COMMENT 'classes that ran in it, sorted [1]',
    `k` UInt8 COMMENT 'longest draft in it [tokens]',
    `wall_us` Nullable(Float64) COMMENT 'sum over its rounds [us]',
    `draft_us` Nullable(Float64) COMMENT 'draft model, sum over its rounds [us]',
    `verify_us` Nullable(Float64) COMMENT 'target forward, sum over its rounds [us]',
    `sample_us` Nullable(Float64) COMMENT 'acceptance and bookkeeping, sum [us]',
    `idle_us` Nullable(Float64) COMMENT 'device idle between the parts, sum [us]',
    `catchup_us` Nullable(Float64) COMMENT 'draft prefill after rounds at k = 0, sum [us]',
    `prefill_us` Nullable(Float64) COMMENT 'target prefill within its rounds, sum [us]',
    `n_q` UInt64 COMMENT 'query tokens of the verify passes [tokens]',
    `n_kv` UInt64 COMMENT 'sum of contexts over its rounds [tokens]',
    `proposed` UInt64 COMMENT 'draft tokens offered [tokens]',
    `accepted` UInt64 COMMENT 'leading ones kept; correction or bonus not counted [tokens]',
    `emitted` UInt64 COMMENT 'really came out [tokens]',
    `prefill_tokens` UInt64 COMMENT 'prompt tokens computed within its rounds [tokens]',
    `padded_tokens` UInt64 COMMENT 'query positions computed for nobody [tokens]',
    `first_at` DateTime64(9, 'UTC') COMMENT 'when its first round began [ns]',
    `last_at` DateTime64(9, 'UTC') COMMENT 'when its last round began [ns]',
    `gap_bins` Array(Int16) COMMENT 'log-histogram of the time between chunks [1]',
    `gap_counts` Array(UInt64) COMMENT 'chunks in each bin [1]',
    `tpot_bins` Array(Int16) COMMENT 'log-histogram of time per output token [1]',
    `tpot_counts` Array(UInt64) COMMENT 'requests in each bin, of those admitted well within it [1]',
    `full_tokens` Nullable(UInt64) COMMENT 'query positions if each sequence had drafted as long as the longest [tokens]',
    `invalid` Nullable(UInt64) COMMENT 'proposals that a grammar refused [tokens]',
    `preempted` Nullable(UInt64) COMMENT 'put back into the queue [requests]',
    `model_bytes` Nullable(UInt64) COMMENT 'that its rounds had to move [bytes]',
    `dram_busy_us` Nullable(Float64) COMMENT 'that the device\'s memory was busy, over the rounds where it is known [us]',
    `dram_seen_us` Nullable(Float64) COMMENT 'wall time of those rounds [us]',
    `prompt_tokens` Nullable(UInt64) COMMENT 'of requests admitted in it [tokens]',
    `cached_tokens` Nullable(UInt64) COMMENT 'of these found in a prefix cache [tokens]',
    `ended_requests` Nullable(UInt64) COMMENT 'admitted in it, and ended [requests]',
    `output_tokens` Nullable(UInt64) COMMENT 'of those, in all [tokens]',
    `ttft_us` Nullable(Float64) COMMENT 'from arrival to the first token, sum [us]',
    `first_tokens` Nullable(UInt64) COMMENT 'whose first token that sum counts [requests]',
    `waiting` Nullable(UInt64) COMMENT 'queued, sum over its rounds [requests]',
    `version` UInt64 COMMENT 'when it was computed; the later row stands [ns]'
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (epoch, policy, replica, boot, pair, arm)
TTL toDateTime(toDateTime(intDiv(version, 1000000000))) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'A block: what the whole replica did in it, after its burn-in';

CREATE TABLE IF NOT EXISTS `block_part`
(
    `epoch` LowCardinality(String) COMMENT 'hash of engine, versions, models and hardware; empty where the boot is not known [1]',
    `policy` UInt32 COMMENT 'policy in force [1]',
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `pair` UInt32 COMMENT 'pair of blocks [1]',
    `arm` LowCardinality(String) COMMENT 'arm that ran [1]',
    `class` LowCardinality(String) COMMENT 'operator\'s label of the requests [1]',
    `context_bucket` LowCardinality(String) COMMENT 'prompt tokens at admission, in a bucket [1]',
    `output_bucket` LowCardinality(String) COMMENT 'requested output tokens, in a bucket [1]',
    `k` UInt8 COMMENT 'draft length [tokens]',
    `request_rounds` UInt64 COMMENT 'in it, counted for each request [rounds]',
    `proposed` UInt64 COMMENT 'draft tokens offered [tokens]',
    `accepted` UInt64 COMMENT 'leading ones kept; correction or bonus not counted [tokens]',
    `emitted` UInt64 COMMENT 'really came out [tokens]',
    `tested` Array(UInt64) COMMENT 'in which each position was at risk: all before it were kept [rounds]',
    `kept` Array(UInt64) COMMENT 'in which the proposal at each position was kept [rounds]',
    `censored` UInt64 COMMENT 'that the end of the text cut short, before a proposal was refused [rounds]',
    `requests` UInt64 COMMENT 'that took part [requests]',
    `kinds` Array(LowCardinality(String)) COMMENT 'adapters of its requests, `guided` added where a grammar constrains them; empty for plain [1]',
    `kind_rounds` Array(UInt64) COMMENT 'of each kind [rounds]',
    `kind_emitted` Array(UInt64) COMMENT 'of each kind, came out [tokens]',
    `kind_tested` Array(UInt64) COMMENT 'of each kind that tested the first position [rounds]',
    `kind_kept` Array(UInt64) COMMENT 'of each kind that kept the first position [rounds]',
    `version` UInt64 COMMENT 'when it was computed; the later row stands [ns]'
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (epoch, policy, replica, boot, pair, arm, class, context_bucket, output_bucket, k)
TTL toDateTime(toDateTime(intDiv(version, 1000000000))) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100
COMMENT 'What the requests of one segment did in a block, by draft length';

CREATE TABLE IF NOT EXISTS `block_class`
(
    `epoch` LowCardinality(String) COMMENT 'hash of engine, versions, models and hardware; empty where the boot is not known [1]',
    `policy` UInt32 COMMENT 'policy in force [1]',
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `boot` String COMMENT 'start of it [1]',
    `pair` UInt32 COMMENT 'pair of blocks [1]',
    `arm` LowCardinality(String) COMMENT 'arm that ran [1]',
    `class` LowCardinality(String) COMMENT 'operator\'s label of the requests [1]',
    `requests` UInt64 COMMENT 'admitted in it [requests]',
    `tpot_bins` Array(Int16) COMMENT 'log-histogram of time per output token [1]',
    `tpot_counts` Array(UInt64) COMMENT 'requests in each bin, of those admitted well within it [1]',
    `version` UInt64 COMMENT 'when it was computed; the later row stands [ns]'
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (epoch, policy, replica, boot, pair, arm, class)
TTL toDateTime(toDateTime(intDiv(version, 1000000000))) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100
COMMENT 'How long the requests of one class waited for their tokens in a block, whoever else ran';

CREATE TABLE IF NOT EXISTS `minute`
(
    `minute` DateTime64(9, 'UTC') COMMENT 'its start [ns]',
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `class` LowCardinality(String) COMMENT 'operator\'s label of the requests [1]',
    `k` UInt8 COMMENT 'draft length [tokens]',
    `request_rounds` UInt64 COMMENT 'in it, counted for each request [rounds]',
    `proposed` UInt64 COMMENT 'draft tokens offered [tokens]',
    `accepted` UInt64 COMMENT 'leading ones kept; correction or bonus not counted [tokens]',
    `emitted` UInt64 COMMENT 'really came out [tokens]',
    `accepted_length` Array(UInt64) COMMENT 'by accepted tokens: the first value counts rounds that kept none [rounds]',
    `tested` Array(UInt64) COMMENT 'in which each position was at risk [rounds]',
    `kept` Array(UInt64) COMMENT 'in which the proposal at each position was kept [rounds]',
    `context` UInt64 COMMENT 'sum of contexts when the rounds began [tokens]',
    `version` UInt64 COMMENT 'when it was computed; the later row stands [ns]',
    INDEX by_time `minute` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(minute)
ORDER BY (minute, replica, class, k)
TTL toDateTime(minute) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100
COMMENT 'What the requests of one class did on one replica in a minute, by draft length';

CREATE TABLE IF NOT EXISTS `minute_time`
(
    `minute` DateTime64(9, 'UTC') COMMENT 'its start [ns]',
    `replica` LowCardinality(String) COMMENT 'serving replica [1]',
    `arm` LowCardinality(Nullable(String)) COMMENT 'arm that ran [1]',
    `k` UInt8 COMMENT 'longest draft in the round [tokens]',
    `rounds` UInt64 COMMENT 'in it [rounds]',
    `batch` UInt64 COMMENT 'sum over its rounds [sequences]',
    `waiting` UInt64 COMMENT 'queued, sum over its rounds [requests]',
    `wall_us` Nullable(Float64) COMMENT 'sum over its rounds [us]',
    `draft_us` Nullable(Float64) COMMENT 'draft model, sum over its rounds [us]',
    `verify_us` Nullable(Float64) COMMENT 'target forward, sum over its rounds [us]',
    `sample_us` Nullable(Float64) COMMENT 'acceptance and bookkeeping, sum [us]',
    `idle_us` Nullable(Float64) COMMENT 'device idle between the parts, sum [us]',
    `catchup_us` Nullable(Float64) COMMENT 'draft prefill after rounds at k = 0, sum [us]',
    `prefill_us` Nullable(Float64) COMMENT 'target prefill within its rounds, sum [us]',
    `n_q` UInt64 COMMENT 'query tokens of the verify passes [tokens]',
    `n_kv` UInt64 COMMENT 'sum of contexts over its rounds [tokens]',
    `proposed` UInt64 COMMENT 'draft tokens offered [tokens]',
    `accepted` UInt64 COMMENT 'leading ones kept; correction or bonus not counted [tokens]',
    `emitted` UInt64 COMMENT 'really came out [tokens]',
    `padded_tokens` UInt64 COMMENT 'query positions computed for nobody [tokens]',
    `model_bytes` Nullable(UInt64) COMMENT 'that its rounds had to move [bytes]',
    `wall_bins` Array(Int16) COMMENT 'log-histogram of the rounds\' wall time [1]',
    `wall_counts` Array(UInt64) COMMENT 'rounds in each bin [1]',
    `version` UInt64 COMMENT 'when it was computed; the later row stands [ns]',
    INDEX by_time `minute` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(minute)
ORDER BY (minute, replica, ifNull(arm, ''), k)
TTL toDateTime(minute) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'Where the time of one replica\'s rounds went in a minute, by arm and longest draft';

CREATE TABLE IF NOT EXISTS `hour`
(
    `hour` DateTime64(9, 'UTC') COMMENT 'its start [ns]',
    `epoch` LowCardinality(String) COMMENT 'hash of engine, versions, models and hardware; empty where the boot is not known [1]',
    `class` LowCardinality(String) COMMENT 'operator\'s label of the requests [1]',
    `context_bucket` LowCardinality(String) COMMENT 'prompt tokens at admission, in a bucket [1]',
    `arm` LowCardinality(Nullable(String)) COMMENT 'arm that ran [1]',
    `k` UInt8 COMMENT 'draft length [tokens]',
    `request_rounds` UInt64 COMMENT 'in it, counted for each request [rounds]',
    `proposed` UInt64 COMMENT 'draft tokens offered [tokens]',
    `accepted` UInt64 COMMENT 'leading ones kept; correction or bonus not counted [tokens]',
    `emitted` UInt64 COMMENT 'really came out [tokens]',
    `tested` Array(UInt64) COMMENT 'in which each position was at risk [rounds]',
    `kept` Array(UInt64) COMMENT 'in which the proposal at each position was kept [rounds]',
    `requests` UInt64 COMMENT 'that took part [requests]',
    `version` UInt64 COMMENT 'when it was computed; the later row stands [ns]',
    INDEX by_time `hour` TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, epoch, class, context_bucket, ifNull(arm, ''), k)
TTL toDateTime(hour) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 100, allow_nullable_key = 1
COMMENT 'What the requests of one class did in an hour, over all replicas of an epoch';

CREATE TABLE IF NOT EXISTS `rolled`
(
    `grain` LowCardinality(String) COMMENT 'always `all` [1]',
    `stored_before` DateTime64(9, 'UTC') COMMENT 'batches stored before this are in the rollups [ns]',
    `version` UInt64 COMMENT 'when it was written; the later row stands [ns]'
)
ENGINE = ReplacingMergeTree(version)
ORDER BY grain
SETTINGS non_replicated_deduplication_window = 100
COMMENT 'How far the rollups have come, so that a restart continues there';
