"""One module for each API, all of one shape; the tuple HANDLERS is everything the broker answers.

A module has `API` (key, versions, plane) and `handle(ctx, request)`.  Where the answer has a place
for an error it also has `error_response(ctx, request, code)`, which the handler pool uses for an
exception of `handle`.  To add an API, write its module and name it here; ApiVersions uses this
tuple.
"""

from __future__ import annotations

from types import ModuleType

from highwater.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    maintain_logs,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_share_group_state,
    write_txn_markers,
)
from highwater.broker.network.handler_pool import handler_table

HANDLERS: tuple[ModuleType, ...] = (
    # records
    produce, fetch, list_offsets, offset_for_leader_epoch, delete_records, init_producer_id,
    # the cluster
    api_versions, metadata, describe_cluster, describe_topic_partitions,
    # the controller's requests
    leader_and_isr, stop_replica, update_metadata, controlled_shutdown,
    # administration
    create_topics, delete_topics, create_partitions, describe_configs, alter_configs,
    incremental_alter_configs, elect_leaders, alter_partition_reassignments,
    list_partition_reassignments, describe_log_dirs, alter_replica_log_dirs, describe_producers,
    update_features,
    # groups
    find_coordinator, join_group, sync_group, heartbeat, leave_group, offset_commit, offset_fetch,
    offset_delete, describe_groups, list_groups, delete_groups, consumer_group_heartbeat,
    consumer_group_describe,
    # share groups
    share_group_heartbeat, share_group_describe, describe_share_group_offsets,
    alter_share_group_offsets, delete_share_group_offsets,
    share_fetch, share_acknowledge,
    # transactions
    add_partitions_to_txn, add_offsets_to_txn, end_txn, txn_offset_commit, write_txn_markers,
    describe_transactions, list_transactions,
    # the share coordinator
    initialize_share_group_state, read_share_group_state, write_share_group_state,
    delete_share_group_state, read_share_group_state_summary,
    # security and quotas
    sasl_handshake, sasl_authenticate, describe_acls, create_acls, delete_acls,
    describe_user_scram_credentials, alter_user_scram_credentials, describe_client_quotas,
    alter_client_quotas, create_delegation_token, renew_delegation_token, expire_delegation_token,
    describe_delegation_token,
)  # fmt: skip

TABLE = handler_table((*HANDLERS, maintain_logs))
"""By API key, for the handler pools; with the one that no client is told of."""
