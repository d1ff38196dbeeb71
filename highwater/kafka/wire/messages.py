"""The messages of Kafka's protocol, one class each, made by kafka-python from Kafka's own schemas.

Code that needs a message imports it from here, so that the library stands behind one door. Field
names are the schemas' in snake_case; a field that a version does not have reads as its default.
Structures inside a message are nested classes (`MetadataResponse.MetadataResponseTopic(...)`).

A class is made when it is first used: to read all schemas is a third of a broker's start, and most
brokers meet few of them.  Until then its name here is a `Late`, which stands for it.

The controller's requests of the ZooKeeper era (LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown) are in `controller_messages`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

APIS_OF: Final = {
    "admin.acl": ("CreateAcls", "DeleteAcls", "DescribeAcls"),
    "admin.client_quotas": ("AlterClientQuotas", "DescribeClientQuotas"),
    "admin.cluster": (
        "AlterReplicaLogDirs", "DescribeCluster", "DescribeLogDirs", "DescribeQuorum",
        "UpdateFeatures",
    ),
    "admin.configs": (
        "AlterConfigs", "DescribeConfigs", "IncrementalAlterConfigs", "ListConfigResources",
    ),
    "admin.groups": ("DeleteGroups", "DescribeGroups", "ListGroups"),
    "admin.topics": (
        "AlterPartitionReassignments", "CreatePartitions", "CreateTopics", "DeleteRecords",
        "DeleteTopics", "DescribeTopicPartitions", "ElectLeaders", "ListPartitionReassignments",
    ),
    "admin.transactions": ("DescribeProducers", "DescribeTransactions", "ListTransactions"),
    "admin.users": ("AlterUserScramCredentials", "DescribeUserScramCredentials"),
    "consumer.fetch": ("Fetch",),
    "consumer.group": (
        "Heartbeat", "JoinGroup", "LeaveGroup", "OffsetCommit", "OffsetDelete", "OffsetFetch",
        "SyncGroup",
    ),
    "consumer.offsets": ("ListOffsets", "OffsetForLeaderEpoch"),
    "metadata.api_versions": ("ApiVersions",),
    "metadata.find_coordinator": ("FindCoordinator",),
    "metadata.metadata": ("Metadata",),
    "producer.produce": ("Produce",),
    "producer.transaction": (
        "AddOffsetsToTxn", "AddPartitionsToTxn", "EndTxn", "InitProducerId", "TxnOffsetCommit",
        "WriteTxnMarkers",
    ),
    "sasl": ("SaslAuthenticate", "SaslBytes", "SaslHandshake"),
}  # fmt: skip
"""Module below kafka.protocol -> the APIs whose requests and responses it has."""
_OWN: Final = {
    "consumer_group_messages": ("ConsumerGroupDescribe", "ConsumerGroupHeartbeat"),
    "share_messages": (
        "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "DeleteShareGroupState",
        "DescribeShareGroupOffsets", "InitializeShareGroupState", "ReadShareGroupState",
        "ReadShareGroupStateSummary", "ShareAcknowledge", "ShareFetch", "ShareGroupDescribe",
        "ShareGroupHeartbeat", "WriteShareGroupState",
    ),
}  # fmt: skip
"""Those of this room that brokers and clients speak, where kafka-python has none."""
_MODULES: Final = {
    f"{api}{side}": f"{room}.{module}"
    for room, modules in (("kafka.protocol", APIS_OF), ("highwater.kafka.wire", _OWN))
    for module, apis in modules.items()
    for api in apis
    for side in ("Request", "Response")
} | {"ConsumerProtocolAssignment": "kafka.protocol.consumer.metadata"}


class Late:
    """Stands for a message's class, or for one of a structure inside it."""

    __slots__ = ("_name", "_outer", "_real")

    def __init__(self, name: str, outer: Late | None = None) -> None:
        self._name, self._outer = name, outer
        self._real: Any = None

    def real(self) -> Any:
        if self._real is None:
            if self._outer is None:
                place: Any = import_module(_MODULES[self._name])
            else:
                place = self._outer.real()
            self._real = getattr(place, self._name)
        return self._real

    def __call__(self, *values: Any, **fields: Any) -> Any:
        return (self._real or self.real())(*values, **fields)

    def __getattr__(self, name: str) -> Any:
        if self._real is None and name[0].isupper() and not name.isupper():
            return Late(name, self)
        return getattr(self._real or self.real(), name)

    def __getitem__(self, version: int) -> Any:
        return self.real()[version]

    def __instancecheck__(self, message: object) -> bool:
        return isinstance(message, self.real())

    def __repr__(self) -> str:
        return f"<{self._name}>"


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"there is no message {name}")
    late = globals()[name] = Late(name)
    return late
