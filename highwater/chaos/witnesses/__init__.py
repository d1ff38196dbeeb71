"""The witnesses, which watch without taking part: deaths of leaders, the sizes of logs, the
brokers' disks."""
