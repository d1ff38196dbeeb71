"""The rows of a broker's identity, its listeners, and its limits on clients."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.config.property_row import INT_MAX, Int, Kind, Long, State, Update, prop

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def _authorizer(value: str) -> str | None:
    if value in ("", ACL_AUTHORIZER):
        return None
    return f"Java classes cannot be loaded; use {ACL_AUTHORIZER}, which is built in"


AT_START = "endpoints are bound at the start alone"


@dataclass(frozen=True, kw_only=True)
class BrokerProperties:
    """A broker's identity, its ZooKeeper, and Highwater's own properties."""

    broker_id: Int = prop(
        -1, synonyms=("node.id",), read_by="highwater.broker.server",
        test="test_start::test_two_brokers_with_one_id",
        doc="The broker's id, unique in the cluster.",
    )  # fmt: skip
    broker_id_generation_enable: bool = prop(
        True, read_by="highwater.kafka.config.checks",
        test="test_config::test_which_ids_a_broker_may_have",
        doc="Whether a broker without an id may be given one.",
    )  # fmt: skip
    reserved_broker_max_id: Int = prop(
        1000, at_least=0, read_by="highwater.kafka.config.checks",
        test="test_config::test_which_ids_a_broker_may_have",
        doc="The highest id that can be configured.",
    )  # fmt: skip
    broker_rack: str | None = prop(
        None, read_by="highwater.broker.server",
        test="test_properties::test_a_broker_tells_its_rack",
        doc="The rack of the broker; replicas of a partition are spread over racks.",
    )  # fmt: skip
    log_dirs: tuple[str, ...] = prop(
        ("/tmp/kafka-logs",), kind=Kind.STRING, read_by="highwater.broker.server",
        test="test_start::test_log_directories_that_cannot_be_used", synonyms=("log.dir",),
        differs={"default": "it has the default of log.dir, which it stands in for"},
        doc="The directories that hold the logs, separated by commas.",
    )  # fmt: skip
    zookeeper_connect: str = prop(
        "127.0.0.1:2181", read_by="highwater.broker.server",
        test="test_start::test_the_wrong_zookeeper",
        differs={"default": "a Config made by a program needs none; no broker starts without it"},
        doc="ZooKeeper's servers, as host:port,host:port/path; to be given.",
    )  # fmt: skip
    zookeeper_session_timeout_ms: Int = prop(
        18000, at_least=1, read_by="highwater.broker.server",
        differs={"range": "ZooKeeper grants no session of 0"},
        test="test_zookeeper::test_away_for_longer_than_a_session",
        doc="The time-out of the ZooKeeper session, in milliseconds.",
    )  # fmt: skip
    zookeeper_connection_timeout_ms: Int | None = prop(
        None, at_least=1, read_by="highwater.broker.server", test="test_start::test_no_zookeeper",
        differs={"range": "no broker could connect within it"},
        doc="How many milliseconds a broker tries to connect to ZooKeeper; the session time-out, "
        "if unset.",
    )  # fmt: skip
    zookeeper_set_acl: bool = prop(
        False, read_by="highwater.kafka.security.zookeeper_login",
        test="test_zookeeper_login::test_znodes_belong_to_the_brokers_user",
        doc="Whether the znodes that a broker makes are its own user's to change, and those with "
        "secrets to read; it needs a login to ZooKeeper (docs/security.md).",
    )  # fmt: skip
    delegation_token_max_lifetime_ms: Long = prop(
        604800000, at_least=1, read_by="highwater.broker.settings.token_manager",
        test="test_token_requests::test_how_long_a_token_counts",
        doc="After how many milliseconds a delegation token ends for good.",
    )  # fmt: skip
    delegation_token_expiry_time_ms: Long = prop(
        86400000, at_least=1, read_by="highwater.broker.settings.token_manager",
        test="test_token_requests::test_how_long_a_token_counts",
        doc="For how many milliseconds a delegation token counts unless it is renewed.",
    )  # fmt: skip
    delegation_token_expiry_check_interval_ms: Long = prop(
        3600000, at_least=1, read_by="highwater.broker.settings.token_manager",
        test="test_token_requests::test_an_expired_token_is_removed",
        doc="After how many milliseconds the controller looks for expired tokens again.",
    )  # fmt: skip
    authorizer_class_name: str = prop(
        "", wrong=_authorizer, read_by="highwater.broker.settings.authorizer",
        test="test_acls::test_what_each_api_answers",
        doc="kafka.security.authorizer.AclAuthorizer, which enforces the access rules; empty: "
        "everybody may do everything.",
    )  # fmt: skip
    highwater_topic_ids: bool = prop(
        True, read_by="highwater.broker.server",
        test="test_property_effects::test_topic_ids",
        doc="Whether the broker announces that it knows topic ids; they are in use while every "
        "registered broker does.",
    )  # fmt: skip
    highwater_broker_probe_ms: Int = prop(
        300, at_least=1, read_by="highwater.controller.shell.term",
        test="test_shells::test_without_probes_everything_waits_for_the_session",
        doc="How many milliseconds the controller waits for a suspected broker to accept a "
        "connection.",
    )  # fmt: skip
    highwater_metrics_port: Int = prop(
        -1, at_least=-1, at_most=65535, read_by="highwater.broker.measure.metrics_server",
        test="test_metrics::test_metrics_and_health",
        doc="The port of metrics, health and traces; -1 for none.",
    )  # fmt: skip
    highwater_metrics_host: str | None = prop(
        None, read_by="highwater.kafka.config",
        test="test_metrics::test_the_page_is_where_the_first_listener_is",
        doc="The address that highwater.metrics.port binds; the first listener's, if unset.",
    )  # fmt: skip
    highwater_metrics_dialect: str = prop(
        "confluent", choices=("confluent", "jmx-exporter"),
        read_by="highwater.broker.measure.metrics_server",
        test="test_metrics::test_the_page_in_the_jmx_exporters_dialect",
        doc="How metrics are named: `confluent` or `jmx-exporter`.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NetworkProperties:
    """Listeners, and limits of connections and requests."""

    listeners: str = prop(
        "PLAINTEXT://:9092", read_by="highwater.kafka.config.listeners",
        test="test_start::test_a_port_in_use", differs={"update": AT_START},
        doc="The addresses to bind, as NAME://host:port, separated by commas.",
    )  # fmt: skip
    advertised_listeners: str | None = prop(
        None, read_by="highwater.kafka.config.listeners",
        test="test_listeners::test_advertised_ports_may_be_equal", differs={"update": AT_START},
        doc="The addresses that clients and brokers are told to connect to.",
    )  # fmt: skip
    listener_security_protocol_map: str = prop(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        read_by="highwater.kafka.config.listeners",
        test="test_bounds::test_the_control_plane_does_not_wait_for_a_full_data_plane",
        differs={"update": AT_START},
        doc="The security protocol of each listener, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = prop(
        None, read_by="highwater.kafka.config.listeners",
        test="test_bounds::test_max_connections_makes_clients_wait_and_brokers_not",
        doc="The listener over which brokers talk to each other.",
    )  # fmt: skip
    security_inter_broker_protocol: str = prop(
        "PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        read_by="highwater.kafka.config.listeners",
        test="test_listeners::test_only_one_way_to_name_the_inter_broker_listener",
        doc="The security protocol between brokers.",
    )  # fmt: skip
    control_plane_listener_name: str | None = prop(
        None, read_by="highwater.kafka.config.listeners",
        test="test_bounds::test_the_control_plane_does_not_wait_for_a_full_data_plane",
        doc="The listener for the controller's requests alone.",
    )  # fmt: skip
    inter_broker_protocol_version: str = prop(
        "2.6", choices=("2.6", "2.6-IV0"), state=State.REFUSED,
        reason="brokers speak 2.6 to each other", differs={"default": "no other version is built"},
        doc="The version of the protocol between brokers.",
    )  # fmt: skip
    num_network_threads: Int = prop(
        3, at_least=1, update=Update.CLUSTER_WIDE, doubles=True,
        read_by="highwater.broker.network.socket_server",
        test="test_limits::test_threads_and_limits_change_while_it_runs",
        doc="How many processors read requests and send answers, per listener.",
    )  # fmt: skip
    num_io_threads: Int = prop(
        8, at_least=1, update=Update.CLUSTER_WIDE, doubles=True,
        read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_waiting_handlers_leave_the_others_free_up_to_their_number",
        doc="How many handlers process requests.",
    )  # fmt: skip
    queued_max_requests: Int = prop(
        500, at_least=1, update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_a_full_channel_stops_reading_and_loses_nothing",
        differs={"update": "the queues look their bounds up each time; Kafka reads them once"},
        doc="How many requests may wait before no more are read.",
    )  # fmt: skip
    queued_max_request_bytes: Long = prop(
        -1, update=Update.CLUSTER_WIDE, read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_queued_max_request_bytes_bounds_the_memory_of_requests",
        differs={"update": "the queues look their bounds up each time; Kafka reads them once"},
        doc="How many bytes of requests may wait; -1 for no limit.",
    )  # fmt: skip
    socket_request_max_bytes: Int = prop(
        104857600, at_least=1, read_by="highwater.broker.network.socket_server",
        test="test_socket_server::test_garbage_closes_with_one_line",
        doc="The largest request that is read, in bytes.",
    )  # fmt: skip
    socket_listen_backlog_size: Int = prop(
        50, at_least=1, read_by="highwater.broker.network.socket_server",
        test="test_backlog::test_as_many_connections_wait_to_be_accepted",
        doc="How many connections may wait to be accepted.",
    )  # fmt: skip
    max_connections: Int = prop(
        INT_MAX, at_least=0, update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_max_connections_makes_clients_wait_and_brokers_not",
        doc="How many connections the broker holds at most.",
    )  # fmt: skip
    max_connections_per_ip: Int = prop(
        INT_MAX, at_least=0, update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_connections_per_ip",
        doc="How many connections are accepted from one address.",
    )  # fmt: skip
    max_connections_per_ip_overrides: str = prop(
        "", update=Update.CLUSTER_WIDE, read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_connections_per_ip",
        doc="Exceptions from max.connections.per.ip, as ADDRESS:COUNT.",
    )  # fmt: skip
    max_connection_creation_rate: Int = prop(
        INT_MAX, at_least=0, update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.network.socket_server",
        test="test_connection_limits::test_acceptors_wait_for_the_creation_rate",
        doc="How many connections are accepted a second.",
    )  # fmt: skip
    connections_max_idle_ms: Long = prop(
        600000, read_by="highwater.broker.network.socket_server",
        test="test_bounds::test_idle_connections_are_closed_but_not_waiting_ones",
        doc="After how many idle milliseconds a connection is closed.",
    )  # fmt: skip
    request_timeout_ms: Int = prop(
        30000, read_by="highwater.broker.coordinator.transaction.coordinator",
        test="test_property_effects::test_a_coordinator_waits_so_long_for_its_replicas",
        doc="How many milliseconds a broker waits for the answer to its request.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class QuotaProperties:
    """The time windows over which quotas are measured."""

    quota_window_num: Int = prop(
        11, at_least=1, read_by="highwater.broker.quota.quota_manager",
        test="test_quotas::test_a_producer_above_its_byte_rate_is_muted_for_what_it_is_told",
        doc="How many samples a client's quota is measured over.",
    )  # fmt: skip
    quota_window_size_seconds: Int = prop(
        1, at_least=1, read_by="highwater.broker.quota.quota_manager",
        test="test_property_effects::test_quotas_are_over_their_own_windows",
        doc="How long each sample of a client's quota is, in seconds.",
    )  # fmt: skip
    controller_quota_window_num: Int = prop(
        11,
        at_least=1,
        read_by="highwater.broker.quota.quota_manager",
        test="test_quota_manager::test_a_strict_mutation_quota_refuses_and_a_permissive_one_throttles",
        doc="How many samples a quota of controller mutations has.",
    )
    controller_quota_window_size_seconds: Int = prop(
        1, at_least=1, read_by="highwater.broker.quota.quota_manager",
        test="test_property_effects::test_quotas_are_over_their_own_windows",
        doc="How long each sample of a quota of controller mutations is, in seconds.",
    )  # fmt: skip
    replication_quota_window_num: Int = prop(
        11, at_least=1, read_by="highwater.broker.replica.throttles",
        test="test_property_effects::test_rates_of_replication_are_over_their_own_windows",
        doc="How many samples a replication throttle has.",
    )  # fmt: skip
    replication_quota_window_size_seconds: Int = prop(
        1, at_least=1, read_by="highwater.broker.replica.throttles",
        test="test_property_effects::test_rates_of_replication_are_over_their_own_windows",
        doc="How long each sample of a replication throttle is, in seconds.",
    )  # fmt: skip
    alter_log_dirs_replication_quota_window_num: Int = prop(
        11, at_least=1, read_by="highwater.broker.replica.throttles",
        test="test_property_effects::test_rates_of_replication_are_over_their_own_windows",
        doc="How many samples the throttle of moves between log directories has.",
    )  # fmt: skip
    alter_log_dirs_replication_quota_window_size_seconds: Int = prop(
        1, at_least=1, read_by="highwater.broker.replica.throttles",
        test="test_property_effects::test_rates_of_replication_are_over_their_own_windows",
        doc="How long each sample of the throttle of moves between log directories is, in seconds.",
    )  # fmt: skip
