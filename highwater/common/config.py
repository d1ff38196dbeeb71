"""server.properties: Kafka's names and defaults, as typed values.

A property `a.b.c` is the attribute `a_b_c`.  Values come from files, the environment and flags,
which `config_sources` merges; this module only says what a property is, what it may hold, and
what it means when it is not given.  Unknown properties are kept aside and warned of, as Kafka
does (`KafkaConfig`, `AbstractConfig`).
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One broker's static configuration.  Times are milliseconds, sizes are bytes."""

    broker_id: int = -1
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
    num_network_threads: int = 3
    num_io_threads: int = 8
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    socket_send_buffer_bytes: int = 102400
    socket_receive_buffer_bytes: int = 102400
    socket_request_max_bytes: int = 104857600
    socket_listen_backlog_size: int = 50
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    connections_max_idle_ms: int = 600000
    request_timeout_ms: int = 30000

    zookeeper_connect: str = "127.0.0.1:2181"
    zookeeper_session_timeout_ms: int = 18000
    zookeeper_connection_timeout_ms: int | None = None

    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    compression_type: str = "producer"
    message_max_bytes: int = 1048588

    log_segment_bytes: int = 1073741824
    log_roll_hours: int = 168
    log_roll_ms: int | None = None
    log_retention_hours: int = 168
    log_retention_ms: int | None = None
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300000
    log_cleanup_policy: str = "delete"
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10485760
    log_flush_interval_messages: int = LONG_MAX
    log_flush_interval_ms: int | None = None
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60000
    log_segment_delete_delay_ms: int = 60000
    log_message_timestamp_type: str = "CreateTime"

    replica_lag_time_max_ms: int = 10000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_response_max_bytes: int = 10485760
    replica_fetch_backoff_ms: int = 1000
    num_replica_fetchers: int = 1
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    replica_socket_timeout_ms: int = 30000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    controller_socket_timeout_ms: int = 30000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5000

    fetch_purgatory_purge_interval_requests: int = 1000
    producer_purgatory_purge_interval_requests: int = 1000
    max_incremental_fetch_session_cache_slots: int = 1000
    fetch_max_bytes: int = 57671680

    group_initial_rebalance_delay_ms: int = 3000
    group_min_session_timeout_ms: int = 6000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    producer_id_expiration_ms: int = 86400000
    transactional_id_expiration_ms: int = 604800000

    highwater_broker_probe_ms: int = 300
    highwater_metrics_port: int = -1
    highwater_metrics_dialect: str = "confluent"
