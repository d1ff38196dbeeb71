"""The witnesses, which watch without taking part: ZooKeeper's znodes, the sizes of logs, the
brokers' disks."""
