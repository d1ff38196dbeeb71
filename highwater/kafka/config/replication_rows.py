"""The rows of replication, of the controller, and of fetches."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.config.property_row import Int, Long, Update, prop


@dataclass(frozen=True, kw_only=True)
class ReplicationProperties:
    """Properties of followers, leaders, and fetches."""

    replica_lag_time_max_ms: Long = prop(
        10000, read_by="highwater.broker.replica.replica_manager",
        differs={"default": "a follower that is stuck holds back acks=all for a third of the time"},
        test="test_follower::test_a_member_of_the_isr_gets_its_full_time_to_show_up",
        doc="After how many milliseconds a follower that has not caught up leaves the ISR.",
    )  # fmt: skip
    replica_fetch_wait_max_ms: Int = prop(
        500, read_by="highwater.broker.replica.fetcher",
        test="test_fetcher_properties::test_a_follower_asks_for_what_its_properties_say",
        doc="How many milliseconds a follower's fetch waits for data.",
    )  # fmt: skip
    replica_fetch_min_bytes: Int = prop(
        1, read_by="highwater.broker.replica.fetcher",
        test="test_fetcher_properties::test_a_follower_asks_for_what_its_properties_say",
        doc="How many bytes a follower's fetch waits for.",
    )  # fmt: skip
    replica_fetch_max_bytes: Int = prop(
        1048576, at_least=0, read_by="highwater.broker.replica.fetcher",
        test="test_fetcher_properties::test_a_follower_asks_for_what_its_properties_say",
        doc="How many bytes of a partition a follower asks for at once.",
    )  # fmt: skip
    replica_fetch_response_max_bytes: Int = prop(
        10485760, at_least=0, read_by="highwater.broker.replica.fetcher",
        test="test_fetcher_properties::test_a_follower_asks_for_what_its_properties_say",
        doc="How many bytes a follower asks for in one fetch.",
    )  # fmt: skip
    replica_fetch_backoff_ms: Int = prop(
        1000, at_least=0, read_by="highwater.broker.replica.fetcher",
        test="test_fetcher::test_the_first_delays_are_short",
        doc="How many milliseconds a fetcher waits after an error.",
    )  # fmt: skip
    num_replica_fetchers: Int = prop(
        1, at_least=1, update=Update.CLUSTER_WIDE, doubles=True,
        read_by="highwater.broker.replica.fetcher_manager",
        test="test_fetcher::test_more_fetchers_share_the_partitions_anew_and_each_has_one",
        differs={"range": "nothing would be replicated"},
        doc="How many fetchers a broker has for each leader's broker.",
    )  # fmt: skip
    replica_high_watermark_checkpoint_interval_ms: Long = prop(
        5000, read_by="highwater.broker.replica.replica_manager",
        test="test_property_effects::test_high_watermarks_are_written_in_their_interval",
        doc="How often high watermarks are written to disk, in milliseconds.",
    )  # fmt: skip
    replica_socket_timeout_ms: Int = prop(
        30000, read_by="highwater.broker.replica.fetcher",
        test="test_fetcher_properties::test_a_follower_waits_so_long_for_an_answer",
        doc="How many milliseconds a fetcher waits for an answer.",
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = prop(
        True, read_by="highwater.controller.shell.term",
        test="test_leaders::test_a_new_controller_checks_the_balance_soon",
        doc="Whether leadership goes back to preferred replicas by itself.",
    )  # fmt: skip
    leader_imbalance_per_broker_percentage: Int = prop(
        10, read_by="highwater.controller.shell.term",
        test="test_leaders::test_leaders_return_only_where_the_imbalance_is_large_enough",
        doc="How many percent of a broker's partitions may be led elsewhere before they go back.",
    )  # fmt: skip
    leader_imbalance_check_interval_seconds: Long = prop(
        300, at_least=1, read_by="highwater.controller.shell.term",
        test="test_leaders::test_leaders_return_by_themselves",
        doc="How often the controller looks for leaders to give back, in seconds.",
    )  # fmt: skip
    controller_socket_timeout_ms: Int = prop(
        30000, read_by="highwater.controller.shell.term",
        test="test_shells::test_a_channel_that_overflows_starts_anew",
        doc="How many milliseconds the controller waits for an answer.",
    )  # fmt: skip
    controlled_shutdown_enable: bool = prop(
        True, read_by="highwater.broker.server",
        test="test_properties::test_a_broker_that_stops_hands_over_its_leaders_first",
        doc="Whether a broker that stops hands over its leaders first.",
    )  # fmt: skip
    controlled_shutdown_max_retries: Int = prop(
        3, read_by="highwater.broker.admin.leaving",
        test="test_property_effects::test_a_broker_asks_so_often_to_hand_over_its_leaders",
        doc="How often a broker that stops tries again to hand over its leaders.",
    )  # fmt: skip
    controlled_shutdown_retry_backoff_ms: Long = prop(
        5000, read_by="highwater.broker.admin.leaving",
        test="test_property_effects::test_a_broker_asks_so_often_to_hand_over_its_leaders",
        doc="How many milliseconds a broker that stops waits before it tries again.",
    )  # fmt: skip
    max_incremental_fetch_session_cache_slots: Int = prop(
        1000, at_least=0, read_by="highwater.broker.replica.replica_manager",
        test="test_sessions::test_a_full_cache_serves_without_session_and_evicts_the_idle",
        doc="How many fetch sessions a broker remembers.",
    )  # fmt: skip
    fetch_max_bytes: Int = prop(
        57671680, at_least=1024, read_by="highwater.broker.handlers.fetch",
        test="test_fetch_waits::test_min_bytes_is_no_more_than_the_whole_answer_may_have",
        doc="How many bytes one fetch is given at most.",
    )  # fmt: skip
