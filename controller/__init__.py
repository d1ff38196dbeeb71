"""The controller: one broker of the cluster decides about leaders, topics and replicas for all.

The decisions are pure (`rules`, put together by `rules.machine`): events in, effects out.  Thin
shells carry them out (`shell`): `candidate` races for /controller, `term` feeds the machine and
executes its effects, `sender` brings requests to each broker in order.

A procedure such as the failure of a broker asks ZooKeeper several times on its way.  It is written
as a generator that yields its questions to ZooKeeper and is resumed with the answers.  So it reads
from top to bottom like the description of the protocol, and yet nothing in it waits: the machine
hands the question out as an effect and goes on when the answer comes in as an event.  Only one
procedure runs at a time, as Kafka's controller has one event thread; so each starts with a whole
view of the cluster.
"""
