"""Share groups (KIP-932) on the side of the partitions' leaders.

persister       what a share-partition's state is, and who keeps it: the interface
state_messages  the same as requests of the share coordinator, and their answers    pure
state_links     the persister: asks whichever broker is the share coordinator
"""
