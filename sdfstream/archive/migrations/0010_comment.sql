-- `sdfstream sql` lists every table with a line about it.
ALTER TABLE owd_1s_of MODIFY COMMENT 'Makes owd_1s on every insert into derived_owd; read v_path_1s.';
