"""SCRAM credentials of a new cluster: in /config/users before the first broker starts.

So brokers can log in to each other by SCRAM from their first connection on, as after
`kafka-storage format --add-scram` or `kafka-configs --zookeeper`.  The rest of a user's
configuration (quotas, the other mechanism) stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError

from highwater.child_processes import StartError
from highwater.kafka import znodes
from highwater.kafka.sanitizer import sanitize
from highwater.kafka.security.scram_arguments import ScramUser
from highwater.kafka.security.scram_users import encode_credential

PATIENCE_S = 30.0


def store(connect: str, users: Iterable[ScramUser], unless_known: Iterable[ScramUser] = ()) -> None:
    """Writes these users' credentials, and those of `unless_known` that are not there yet; raises
    StartError.  `connect` is HOST:PORT."""
    client = KazooClient(connect, timeout=PATIENCE_S)
    try:
        client.start(PATIENCE_S)
        for replace, user in (*((False, u) for u in unless_known), *((True, u) for u in users)):
            path = znodes.config_path("users", sanitize(user.name))
            try:
                client.create(path, b"", makepath=True)
            except NodeExistsError:
                pass  # an earlier start has made it
            config = dict(znodes.decode_config(client.get(path)[0]))
            if user.mechanism in config and not replace:
                continue  # it stays: somebody may have changed the password
            config[user.mechanism] = encode_credential(user.credential)
            client.set(path, znodes.encode_config(config))
    except (KazooException, KazooTimeoutError) as error:
        raise StartError(f"SCRAM users cannot be written to ZooKeeper: {error!r}") from error
    finally:
        client.stop()
        client.close()
