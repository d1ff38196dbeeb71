"""server.properties: Kafka's names and defaults, as typed values.

A property `a.b.c` is the attribute `a_b_c`.  The annotation is Kafka's type of the property (`Int`
and `Long` differ in range only), and a default of None means "not given: see the property that
stands in for it", as `log.roll.ms` is stood in for by `log.roll.hours`.  The properties below the
table answer with the value that holds.

Three more modules belong to it: `sources` merges files, environment and flags,
`checks` says what a value may be, and `listeners` reads the listener properties.
Unknown properties are kept in `originals` and warned of, as Kafka does (`KafkaConfig`,
`AbstractConfig`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from highwater.kafka.config.listeners import Listeners, parse_listeners

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647
DOUBLE_MAX = 1.7976931348623157e308
HOUR_MS = 3_600_000

Int = int
Long = int
Short = int
Double = float


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One broker's static configuration.  Times are milliseconds, sizes are bytes."""

    broker_id: Int = -1
    broker_id_generation_enable: bool = True
    reserved_broker_max_id: Int = 1000
    broker_rack: str | None = None
    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)

    listeners: str = "PLAINTEXT://:9092"
    advertised_listeners: str | None = None
    listener_security_protocol_map: str = (
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    )
    inter_broker_listener_name: str | None = None
    security_inter_broker_protocol: str = "PLAINTEXT"
    control_plane_listener_name: str | None = None
    inter_broker_protocol_version: str = "2.6"
    num_network_threads: Int = 3
    num_io_threads: Int = 8
    background_threads: Int = 10
    num_recovery_threads_per_data_dir: Int = 1
    queued_max_requests: Int = 500
    queued_max_request_bytes: Long = -1
    socket_send_buffer_bytes: Int = 102400
    socket_receive_buffer_bytes: Int = 102400
    socket_request_max_bytes: Int = 104857600
    socket_listen_backlog_size: Int = 50
    max_connections: Int = INT_MAX
    max_connections_per_ip: Int = INT_MAX
    max_connections_per_ip_overrides: str = ""
    max_connection_creation_rate: Int = INT_MAX
    connections_max_idle_ms: Long = 600000
    connection_failed_authentication_delay_ms: Int = 100
    request_timeout_ms: Int = 30000

    zookeeper_connect: str = "127.0.0.1:2181"
    zookeeper_session_timeout_ms: Int = 18000
    zookeeper_connection_timeout_ms: Int | None = None
    zookeeper_max_in_flight_requests: Int = 10
    zookeeper_set_acl: bool = False

    num_partitions: Int = 1
    default_replication_factor: Int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    min_insync_replicas: Int = 1
    unclean_leader_election_enable: bool = False
    compression_type: str = "producer"
    message_max_bytes: Int = 1048588

    log_segment_bytes: Int = 1073741824
    log_roll_ms: Long | None = None
    log_roll_hours: Int = 168
    log_roll_jitter_ms: Long | None = None
    log_roll_jitter_hours: Int = 0
    log_retention_ms: Long | None = None
    log_retention_minutes: Int | None = None
    log_retention_hours: Int = 168
    log_retention_bytes: Long = -1
    log_retention_check_interval_ms: Long = 300000
    log_initial_task_delay_ms: Long = 30000
    log_local_retention_ms: Long = -2
    log_local_retention_bytes: Long = -2
    log_cleanup_policy: str = "delete"
    log_cleaner_enable: bool = True
    log_cleaner_threads: Int = 1
    log_cleaner_backoff_ms: Long = 15000
    log_cleaner_delete_retention_ms: Long = 86400000
    log_cleaner_min_compaction_lag_ms: Long = 0
    log_cleaner_max_compaction_lag_ms: Long = LONG_MAX
    log_cleaner_min_cleanable_ratio: Double = 0.5
    log_cleaner_dedupe_buffer_size: Long = 134217728
    log_cleaner_io_buffer_size: Int = 524288
    log_cleaner_io_buffer_load_factor: Double = 0.9
    log_cleaner_io_max_bytes_per_second: Double = DOUBLE_MAX
    log_index_interval_bytes: Int = 4096
    log_index_size_max_bytes: Int = 10485760
    log_preallocate: bool = False
    log_flush_interval_messages: Long = LONG_MAX
    log_flush_interval_ms: Long | None = None
    log_flush_scheduler_interval_ms: Long = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: Int = 60000
    log_flush_start_offset_checkpoint_interval_ms: Int = 60000
    log_segment_delete_delay_ms: Long = 60000
    log_dir_failure_timeout_ms: Long = 30000
    log_message_format_version: str = "3.0-IV1"
    log_message_timestamp_type: str = "CreateTime"
    log_message_timestamp_difference_max_ms: Long = LONG_MAX
    log_message_timestamp_before_max_ms: Long = LONG_MAX
    log_message_timestamp_after_max_ms: Long = LONG_MAX
    log_message_downconversion_enable: bool = True
    compression_gzip_level: Int = -1
    compression_lz4_level: Int = 9
    compression_zstd_level: Int = 3

    replica_lag_time_max_ms: Long = 10000
    replica_fetch_wait_max_ms: Int = 500
    replica_fetch_min_bytes: Int = 1
    replica_fetch_max_bytes: Int = 1048576
    replica_fetch_response_max_bytes: Int = 10485760
    replica_fetch_backoff_ms: Int = 1000
    num_replica_fetchers: Int = 1
    replica_high_watermark_checkpoint_interval_ms: Long = 5000
    replica_socket_timeout_ms: Int = 30000
    replica_socket_receive_buffer_bytes: Int = 65536
    replica_selector_class: str | None = None
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: Int = 10
    leader_imbalance_check_interval_seconds: Long = 300
    unclean_leader_election_interval_ms: Long = 300000
    controller_socket_timeout_ms: Int = 30000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: Int = 3
    controlled_shutdown_retry_backoff_ms: Long = 5000

    fetch_purgatory_purge_interval_requests: Int = 1000
    producer_purgatory_purge_interval_requests: Int = 1000
    delete_records_purgatory_purge_interval_requests: Int = 1
    max_incremental_fetch_session_cache_slots: Int = 1000
    fetch_max_bytes: Int = 57671680

    group_initial_rebalance_delay_ms: Int = 3000
    group_min_session_timeout_ms: Int = 6000
    group_max_session_timeout_ms: Int = 1800000
    group_max_size: Int = INT_MAX
    offset_metadata_max_bytes: Int = 4096
    offsets_commit_timeout_ms: Int = 5000
    offsets_load_buffer_size: Int = 5242880
    offsets_retention_minutes: Int = 10080
    offsets_retention_check_interval_ms: Long = 600000
    offsets_topic_num_partitions: Int = 50
    offsets_topic_replication_factor: Short = 3
    offsets_topic_segment_bytes: Int = 104857600
    offsets_topic_compression_codec: Int = 0

    transaction_state_log_num_partitions: Int = 50
    transaction_state_log_replication_factor: Short = 3
    transaction_state_log_min_isr: Int = 2
    transaction_state_log_segment_bytes: Int = 104857600
    transaction_state_log_load_buffer_size: Int = 5242880
    transaction_max_timeout_ms: Int = 900000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = 10000
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = 3600000
    transaction_partition_verification_enable: bool = True
    transactional_id_expiration_ms: Int = 604800000
    producer_id_expiration_ms: Int = 86400000
    producer_id_expiration_check_interval_ms: Int = 600000

    quota_window_num: Int = 11
    quota_window_size_seconds: Int = 1
    controller_quota_window_num: Int = 11
    controller_quota_window_size_seconds: Int = 1
    replication_quota_window_num: Int = 11
    replication_quota_window_size_seconds: Int = 1
    alter_log_dirs_replication_quota_window_num: Int = 11
    alter_log_dirs_replication_quota_window_size_seconds: Int = 1

    highwater_broker_probe_ms: Int = 300
    highwater_metrics_port: Int = -1
    highwater_metrics_host: str | None = None
    highwater_metrics_dialect: str = "confluent"

    originals: Mapping[str, str] = field(
        default_factory=dict, compare=False, hash=False, repr=False
    )
    """What was given, by property name, unknown properties included; says what is a default and
    what is not.
    """

    def change(self, values: Mapping[str, object]) -> None:
        """Dynamic broker configuration: the one thing that changes a configuration in use."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def parsed_listeners(self) -> Listeners:
        """Endpoints, and the parts they play; parsed anew at each call, so keep it."""
        return parse_listeners(self)

    @property
    def metrics_host(self) -> str:
        """What the metrics port binds; "" is every interface."""
        given = self.highwater_metrics_host
        return self.parsed_listeners.bound[0].host if given is None else given

    @property
    def segment_ms(self) -> int:
        given = self.log_roll_ms
        return self.log_roll_hours * HOUR_MS if given is None else given

    @property
    def segment_jitter_ms(self) -> int:
        given = self.log_roll_jitter_ms
        return self.log_roll_jitter_hours * HOUR_MS if given is None else given

    @property
    def retention_ms(self) -> int:
        """Kafka's precedence: milliseconds, minutes, hours; anything negative is "for ever", -1."""
        if self.log_retention_ms is not None:
            value = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            value = self.log_retention_minutes * 60_000
        else:
            value = self.log_retention_hours * HOUR_MS
        return max(value, -1)

    @property
    def flush_ms(self) -> int:
        given = self.log_flush_interval_ms
        return self.log_flush_scheduler_interval_ms if given is None else given
