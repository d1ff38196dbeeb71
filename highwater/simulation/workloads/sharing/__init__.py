"""A share group (KIP-932) in the simulated workload, and its rules.

share_client        the calls of a member, one attempt each
share_ledger        what members were given and have said, and the rules about it
share_inspector     what the leaders' machines hold after each step, and the rules about it
stored_states       what is stored of share-partitions, by the committed log
share_transactions  a producer that writes in transactions, and what the group gets of it
share_member        one member through all its lives
share_workload      the part of a run: producers, members, an onlooker
"""
