-- Raw and derived rows live an hour, and merging a row costs two to three times its insert (docs/performance.md). With
-- the engine's defaults, which merge five parts at a time, a row of one insert a second was merged four or five times
-- before it was dropped. Now at least 32 parts are merged at once and none beyond 100 MiB, so a row is merged about
-- once, and an hour stands in some 150 parts.

ALTER TABLE raw_probe MODIFY SETTING
    min_parts_to_merge_at_once = 32,
    max_bytes_to_merge_at_max_space_in_pool = 104857600;

ALTER TABLE derived_owd MODIFY SETTING
    min_parts_to_merge_at_once = 32,
    max_bytes_to_merge_at_max_space_in_pool = 104857600;
