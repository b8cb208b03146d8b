"""What a client of the SQL front may choose: settings and formats that reach nothing but the archive. Pure.

Everything that is not here is refused by its name. A setting gets in when it only bounds a query, or only changes how
values are printed, compared or joined; one that names a file, an address, a schema or a disk, or holds SQL in a
string, never does. The engine's own users refuse those too (``engine_config/users.xml``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sdfstream.archive.failures import READONLY, UNKNOWN_FORMAT, UNKNOWN_SETTING, EngineError

PAGE: Final = "schemas/clickhouse/README.md"
"""Where people read what is allowed."""

_WITHOUT_EFFECT: Final = """
    add_http_cors_header async_insert_busy_timeout_ms buffer_size cancel_http_readonly_queries_on_client_close
    client_protocol_version compress enable_http_compression http_headers_progress_interval_ms
    http_receive_timeout http_response_buffer_size http_send_timeout http_write_exception_in_output_format
    http_zlib_compression_level log_comment log_queries network_compression_method query_id quota_key readonly role
    send_logs_level send_progress_in_http_headers session_check session_id session_timeout user
    wait_end_of_query
"""
_LIMITS: Final = """
    distinct_overflow_mode extremes group_by_overflow_mode join_overflow_mode limit max_ast_depth max_ast_elements
    max_block_size max_bytes_in_distinct
    max_bytes_in_join max_bytes_in_set max_bytes_to_read max_bytes_to_sort max_bytes_to_transfer
    max_columns_to_read max_concurrent_queries_for_user max_estimated_execution_time max_execution_speed
    max_execution_time max_expanded_ast_elements max_memory_usage max_memory_usage_for_user max_query_size
    max_result_bytes max_result_rows max_rows_in_distinct max_rows_in_join max_rows_in_set max_rows_to_group_by
    max_rows_to_read max_rows_to_sort max_subquery_depth max_threads min_execution_speed offset
    preferred_block_size_bytes
    preferred_max_column_in_block_size_bytes priority read_overflow_mode result_overflow_mode set_overflow_mode
    sort_overflow_mode timeout_before_checking_execution_speed timeout_overflow_mode
"""
_MEANING: Final = """
    aggregate_functions_null_for_empty allow_experimental_correlated_subqueries allow_suspicious_types_in_group_by
    allow_suspicious_types_in_order_by any_join_distinct_right_table_keys cast_ipv4_ipv6_default_on_conversion_error
    cast_keep_nullable cast_string_to_dynamic_use_inference cast_string_to_variant_use_inference
    count_distinct_implementation data_type_default_nullable date_time_overflow_behavior decimal_check_overflow
    describe_include_subcolumns enable_optimize_predicate_expression empty_result_for_aggregation_by_empty_set
    enable_positional_arguments final formatdatetime_parsedatetime_m_is_month_name group_by_use_nulls
    implicit_select insert_null_as_default join_algorithm join_any_take_last_row join_default_strictness join_use_nulls
    legacy_column_name_of_tuple_literal optimize_read_in_order parallelize_output_from_storages
    prefer_column_name_to_alias regexp_max_matches_per_row select_sequential_consistency session_timezone
    show_table_uuid_in_table_create_query_if_not_nil single_join_prefer_left_table transform_null_in
    union_default_mode use_client_time_zone
"""
_PRINTING: Final = """
    bool_false_representation bool_true_representation cross_to_inner_join_rewrite
    date_time_input_format date_time_output_format format_binary_max_array_size format_binary_max_string_size
    format_csv_allow_double_quotes format_csv_allow_single_quotes format_csv_delimiter format_csv_null_representation
    format_json_object_each_row_column_for_object_name format_tsv_null_representation interval_output_format
"""
_WRITING: Final = """
    async_insert async_insert_deduplicate deduplicate_blocks_in_dependent_materialized_views
    input_format_allow_errors_num input_format_arrow_allow_missing_columns input_format_defaults_for_omitted_fields
    input_format_null_as_default input_format_skip_unknown_fields insert_deduplicate insert_deduplication_token
    max_insert_block_size max_insert_threads max_partitions_per_insert_block
    min_insert_block_size_bytes min_insert_block_size_rows mutations_sync alter_sync optimize_throw_if_noop
    throw_on_max_partitions_per_insert_block wait_for_async_insert wait_for_async_insert_timeout
"""
_FAMILIES: Final = re.compile(
    r"output_format_(?:arrow|avro_rows|binary|bson|csv|decimal|float|json|markdown|msgpack|native|orc|parquet|pretty"
    r"|tsv|values|write|xml|always|compression|enable)_\w+"
)
"""Families of settings about how one format prints."""
_NO_PRINTING: Final = re.compile(r"schema|path|file|url|host|writer_time_zone_name|registry|subject")
"""Words that no member of such a family may have."""

WITHOUT_EFFECT: Final = frozenset(_WITHOUT_EFFECT.split())
"""Parameters of ClickHouse's protocol that clients send and this front leaves aside; the engine never sees them."""
READER_SETTINGS: Final = frozenset(f"{_LIMITS} {_MEANING} {_PRINTING}".split())
"""Settings of a query that only reads, besides those about how a format prints (``output_format_…``)."""
WRITER_SETTINGS: Final = READER_SETTINGS | frozenset(_WRITING.split())
"""Settings of whoever has the token to write, too."""

_FAMILY_OF_FORMATS: Final = re.compile(
    r"(?:TabSeparated|TSV|Raw|TSVRaw|TabSeparatedRaw|CSV|RowBinary|JSONCompactEachRow|JSONCompactStringsEachRow)"
    r"(?:WithNames(?:AndTypes)?)?"
    r"|JSON(?:Strings|Columns|ColumnsWithMetadata|Compact|CompactColumns|CompactStrings|EachRow|StringsEachRow|Lines|L"
    r"|ObjectEachRow|EachRowWithProgress|CompactEachRowWithProgress)?"
    r"|NDJSON|PrettyJSONEachRow|PrettyJSONLines|PrettyNDJSON"
    r"|Pretty(?:Compact|Space)?(?:NoEscapes)?(?:MonoBlock)?"
    r"|Native|Arrow|ArrowStream|Parquet|ORC|Avro|MsgPack|BSONEachRow|Npy|Vertical|Markdown|MD|XML|TSKV|Values"
    r"|SQLInsert|Null|Hash|RawBLOB|LineAsString|Prometheus"
)
_FORMATS_WITH_A_SCHEMA: Final = re.compile(
    r"template\w*|customseparated\w*|protobuf\w*|capnproto|avroconfluent|regexp|mysqlwire|mysqldump|postgresqlwire",
    re.IGNORECASE,
)


def is_allowed(name: str, *, writable: bool = False) -> bool:
    """Whether a client may give this setting.

    >>> is_allowed("max_threads"), is_allowed("output_format_json_quote_64bit_integers"), is_allowed("format_schema")
    (True, True, False)
    >>> is_allowed("insert_deduplicate"), is_allowed("insert_deduplicate", writable=True)
    (False, True)
    """
    if name in (WRITER_SETTINGS if writable else READER_SETTINGS):
        return True
    return _FAMILIES.fullmatch(name) is not None and _NO_PRINTING.search(name) is None


def check_settings(given: Mapping[str, str], *, writable: bool = False) -> Mapping[str, str]:
    """The settings for the engine; those of the protocol that have no effect here are left out.

    Raises
    ------
    EngineError
        115: one is not among the allowed.
    """
    wanted = {name: value for name, value in given.items() if name not in WITHOUT_EFFECT}
    for name in wanted:
        if not is_allowed(name, writable=writable):
            raise EngineError(
                f"setting {name[:80]!r} is refused: this address takes only settings that bound a query or say how "
                f"its answer is printed; leave it out ({PAGE} lists them)",
                UNKNOWN_SETTING,
            )
    return MappingProxyType(wanted)


def check_format(name: str) -> str:
    """The name of an answer's format.

    Raises
    ------
    EngineError
        73: it is not among the allowed.
    """
    if _FAMILY_OF_FORMATS.fullmatch(name) is None:
        raise EngineError(
            f"format {name[:60]!r} is refused: this address prints formats that need no schema or template, as "
            f"TabSeparated, CSV, JSON, JSONEachRow, Native, Arrow, Parquet ({PAGE} lists them)",
            UNKNOWN_FORMAT,
        )
    return name


def refuse_schemas(words: Iterable[str]) -> None:
    """Refuse a statement with ``FORMAT name`` anywhere, where that format reads or writes a schema or a template.

    Raises
    ------
    EngineError
        164.
    """
    before = ""
    for word in words:
        if before.upper() == "FORMAT" and _FORMATS_WITH_A_SCHEMA.fullmatch(word):
            raise EngineError(f"format {word[:60]!r} is refused: it reads or writes files of its own", READONLY)
        before = word
