"""Share groups (KIP-932) on the side of the partitions' leaders.

sessions        which partitions a member fetches                                    pure
in_flight       the records in flight of a share-partition, as batches and runs      pure
acquisition     the choice of the records that a fetch acquires                      pure
share_partition the machine: states, locks, changes and what is to be stored         pure
share_partitions    those that this broker leads: loading, locks, writes; the shell
share_settings  a group's properties that the leaders need                           pure
share_metrics   meters, by Kafka's names
read_batches    the batches that a fetch has read                                    pure
persister       what a share-partition's state is, and who keeps it: the interface
state_messages  the same as requests of the share coordinator, and their answers     pure
state_links     the persister: asks whichever broker is the share coordinator
"""
