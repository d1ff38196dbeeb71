"""The rows of a broker's link to ZooKeeper: read as text by `kafka/security/zookeeper_login`."""

from __future__ import annotations

from collections.abc import Sequence

from highwater.kafka.config.property_row import Kind, Property, Value
from highwater.kafka.config.security_rows import among, identification

_LINK = "highwater.kafka.security.zookeeper_login"
_LINK_TEST = "test_zookeeper_login::test_brokers_reach_zookeeper_over_tls"
_HERE = "highwater.kafka.config.zookeeper_rows"
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"


def _link(
    name: str,
    doc: str,
    kind: Kind = Kind.STRING,
    default: Value | None = None,
    read_by: str = _LINK,
    **more: object,
) -> Property:
    return Property(
        name=name, kind=kind, default=default, doc=doc, read_by=read_by, test=_LINK_TEST,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


ZOOKEEPER_ROWS: Sequence[Property] = (
    _link(
        "zookeeper.ssl.client.enable",
        "Whether brokers reach ZooKeeper over TLS.",
        Kind.BOOLEAN,
        False,
    ),
    _link(
        "zookeeper.clientCnxnSocket",
        f"{NETTY}, which Kafka needs for TLS; it has no effect of its own here.",
        read_by=_HERE,
        wrong=lambda value: (
            None if value in ("", NETTY) else f"a Java class, which cannot be loaded; use {NETTY}"
        ),
    ),
    _link(
        "zookeeper.ssl.keystore.location",
        "The file with the key and certificate that ZooKeeper is shown, PEM or PKCS12.",
    ),
    _link("zookeeper.ssl.keystore.password", "The password of that key store.", Kind.PASSWORD),
    _link(
        "zookeeper.ssl.truststore.location",
        "The file with the authorities that ZooKeeper's certificate may be of, PEM or PKCS12; the "
        "system's, if unset.",
    ),
    _link("zookeeper.ssl.truststore.password", "The password of that trust store.", Kind.PASSWORD),
    *(
        _link(
            name,
            "The format of the store; its content decides, whatever is said here.",
            read_by=_HERE,
            wrong=among("JKS", "PKCS12", "PEM"),
        )
        for name in ("zookeeper.ssl.keystore.type", "zookeeper.ssl.truststore.type")
    ),
    _link(
        "zookeeper.ssl.protocol",
        "The version of TLS, where zookeeper.ssl.enabled.protocols is unset.",
        default="TLSv1.2",
        wrong=among("TLSv1.2", "TLSv1.3"),
    ),
    _link(
        "zookeeper.ssl.enabled.protocols",
        "The versions of TLS, out of TLSv1.2 and TLSv1.3.",
        Kind.LIST,
        wrong=among("TLSv1.2", "TLSv1.3"),
    ),
    _link(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "`https` has a broker check that the certificate is for ZooKeeper's host; empty: no check.",
        default="HTTPS",
        wrong=identification,
    ),
)
