"""Everything outside the program: network, disk, ZooKeeper, clock and chance.

`api` is the seam, `real` this machine, and `sim` a simulated one under virtual time.
"""
