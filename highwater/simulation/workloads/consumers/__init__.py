"""Groups of the consumer protocol (KIP-848) in the simulated workload, and their rules.

consumer_client    the calls of a member, one attempt each
ownership          what members were told and have said, and the rules about it
consumer_member    one member through all its lives
consumer_workload  the part of a run: members, a caretaker of the topics, an onlooker
"""
