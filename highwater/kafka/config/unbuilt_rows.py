"""The rows of properties that are not built: refused, or without effect here.

A broker that ignored an authorizer or a key store would be open to everyone, against the will of
its operator.  So a refused property is accepted only with Kafka's default: any other value stops
the start, and none can be set while a broker runs.

Source: the names and defaults of kafka.server.KafkaConfig.configDef of 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from highwater.kafka.config.log_rows import TIERED
from highwater.kafka.config.property_row import (
    LONG_MAX,
    Kind,
    Property,
    State,
    Update,
    rows,
)

PRINCIPALS = "principals are made by the rules of the protocol, not by Java classes"
TLS = "TLS is OpenSSL's here, with its own ciphers and without Java's providers and engines"
SASL = (
    "SASL is PLAIN, SCRAM and OAUTHBEARER with a JWKS file here, without Kerberos and Java classes"
)
PASSWORDS = "the encoding of dynamic passwords is not built yet"
ZOOKEEPER_TLS = "TLS towards ZooKeeper is OpenSSL's, with its own ciphers and no revocation lists"
POLICY = "policies of this kind are Java classes, which cannot be loaded"
CLASSES = "it names Java classes, which cannot be loaded"
FOLLOWERS = "consumers read from leaders alone"
COMMITS = "a commit waits for all replicas in sync"
UNSTABLE = "no unstable versions are built"
MIGRATION = "the migration to KRaft is not built"
KRAFT = "a KRaft property, and this is ZooKeeper mode"

KRAFT_ALONE = "KRaft alone; Apache Kafka in ZooKeeper mode does not use it either"
GROUPS = "the group coordinator has no such switches"
SHARE = "share groups begin with share.version, and their number has no limit"
INITIALIZATION = "the next heartbeat begins again where state could not be initialized"
JVM = "the metrics of the JVM; highwater.metrics.port serves this broker's"
THREADS = "there are no such threads; the work is done by tasks and one pool of threads"
PURGATORY = "finished operations leave the purgatory at once"
KERBEROS = "Kerberos is not built, and no SASL listener starts with GSSAPI"
LOGINS = "a broker's own login does not expire, so that none is renewed"
LOADING = "a coordinator reads its log in pieces of one size"
SCOPES = "no rule asks for the scope of a token"
SOCKETS = "the system sizes the buffers of sockets, and requests have their own time-outs"
ZOOKEEPER_REQUESTS = "the ZooKeeper client sends each request at once"

FAMILIES: Mapping[str, str] = {
    "ssl.": TLS,
    "sasl.": SASL,
    "password.encoder.": PASSWORDS,
    "zookeeper.ssl.": ZOOKEEPER_TLS,
}
"""Prefix -> what is missing for every name with that prefix, even an engine's or a login's own."""

REFUSED: Sequence[Property] = (
    *rows(
        State.REFUSED,
        TLS,
        ("security.providers", Kind.STRING, None),
        ("ssl.allow.dn.changes", Kind.BOOLEAN, False),
        ("ssl.allow.san.changes", Kind.BOOLEAN, False),
        ("ssl.cipher.suites", Kind.LIST, ""),
        ("ssl.engine.factory.class", Kind.CLASS, None),
        ("ssl.keymanager.algorithm", Kind.STRING, "SunX509"),
        ("ssl.protocol", Kind.STRING, "TLSv1.3"),
        ("ssl.provider", Kind.STRING, None),
        ("ssl.secure.random.implementation", Kind.STRING, None),
        ("ssl.trustmanager.algorithm", Kind.STRING, "PKIX"),
    ),
    *rows(
        State.REFUSED,
        SASL,
        ("sasl.client.callback.handler.class", Kind.CLASS, None),
        ("sasl.login.callback.handler.class", Kind.CLASS, None),
        ("sasl.login.class", Kind.CLASS, None),
        ("sasl.login.connect.timeout.ms", Kind.INT, None),
        ("sasl.login.read.timeout.ms", Kind.INT, None),
        ("sasl.login.retry.backoff.max.ms", Kind.LONG, 10000),
        ("sasl.login.retry.backoff.ms", Kind.LONG, 100),
        ("sasl.mechanism.controller.protocol", Kind.STRING, "GSSAPI"),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, 3600000),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, 10000),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind.LONG, 100),
        ("sasl.oauthbearer.token.endpoint.url", Kind.STRING, None),
    ),
    *rows(
        State.REFUSED,
        PASSWORDS,
        ("password.encoder.cipher.algorithm", Kind.STRING, "AES/CBC/PKCS5Padding"),
        ("password.encoder.iterations", Kind.INT, 4096),
        ("password.encoder.key.length", Kind.INT, 128),
        ("password.encoder.keyfactory.algorithm", Kind.STRING, None),
        ("password.encoder.old.secret", Kind.PASSWORD, None),
        ("password.encoder.secret", Kind.PASSWORD, None),
    ),
    *rows(
        State.REFUSED,
        ZOOKEEPER_TLS,
        ("zookeeper.ssl.cipher.suites", Kind.LIST, None),
        ("zookeeper.ssl.crl.enable", Kind.BOOLEAN, False),
        ("zookeeper.ssl.ocsp.enable", Kind.BOOLEAN, False),
    ),
    *rows(
        State.REFUSED,
        PRINCIPALS,
        (
            "principal.builder.class",
            Kind.CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        ),
    ),
    *rows(
        State.REFUSED,
        POLICY,
        ("alter.config.policy.class.name", Kind.CLASS, None),
        ("create.topic.policy.class.name", Kind.CLASS, None),
    ),
    *rows(
        State.REFUSED,
        CLASSES,
        ("client.quota.callback.class", Kind.CLASS, None),
        ("group.share.assignors", Kind.LIST, "simple"),
        (
            "group.share.persister.class.name",
            Kind.STRING,
            "org.apache.kafka.server.share.persister.DefaultStatePersister",
        ),
        ("kafka.metrics.reporters", Kind.LIST, ""),
        ("metric.reporters", Kind.LIST, ""),
    ),
    *rows(
        State.REFUSED,
        FOLLOWERS,
        ("replica.selector.class", Kind.STRING, None),
    ),
    *rows(
        State.REFUSED,
        COMMITS,
        ("offsets.commit.required.acks", Kind.SHORT, -1),
    ),
    *rows(
        State.REFUSED,
        UNSTABLE,
        ("unstable.api.versions.enable", Kind.BOOLEAN, False),
        ("unstable.feature.versions.enable", Kind.BOOLEAN, False),
    ),
    *rows(
        State.REFUSED,
        MIGRATION,
        ("zookeeper.metadata.migration.enable", Kind.BOOLEAN, False),
    ),
    *rows(
        State.REFUSED,
        KRAFT,
        ("controller.listener.names", Kind.STRING, None),
        ("controller.quorum.bootstrap.servers", Kind.LIST, ""),
        ("controller.quorum.voters", Kind.LIST, ""),
        ("process.roles", Kind.LIST, ""),
    ),
    *rows(
        State.REFUSED,
        TIERED,
        ("remote.log.storage.system.enable", Kind.BOOLEAN, False),
    ),
)

WITHOUT_EFFECT: Sequence[Property] = (
    *rows(
        State.WITHOUT_EFFECT, SCOPES, ("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope")
    ),
    *rows(
        State.WITHOUT_EFFECT,
        TIERED,
        ("remote.fetch.max.wait.ms", Kind.INT, 500),
        ("remote.log.index.file.cache.total.size.bytes", Kind.LONG, 1073741824),
        ("remote.log.manager.copy.max.bytes.per.second", Kind.LONG, LONG_MAX),
        ("remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, LONG_MAX),
        update=Update.CLUSTER_WIDE,
    ),
    *rows(
        State.WITHOUT_EFFECT,
        TIERED,
        ("remote.log.manager.copier.thread.pool.size", Kind.INT, -1),
        ("remote.log.manager.copy.quota.window.num", Kind.INT, 11),
        ("remote.log.manager.copy.quota.window.size.seconds", Kind.INT, 1),
        ("remote.log.manager.expiration.thread.pool.size", Kind.INT, -1),
        ("remote.log.manager.fetch.quota.window.num", Kind.INT, 11),
        ("remote.log.manager.fetch.quota.window.size.seconds", Kind.INT, 1),
        ("remote.log.manager.task.interval.ms", Kind.LONG, 30000),
        ("remote.log.manager.task.retry.backoff.max.ms", Kind.LONG, 30000),
        ("remote.log.manager.task.retry.backoff.ms", Kind.LONG, 500),
        ("remote.log.manager.task.retry.jitter", Kind.DOUBLE, 0.2),
        ("remote.log.manager.thread.pool.size", Kind.INT, 10),
        ("remote.log.metadata.custom.metadata.max.bytes", Kind.INT, 128),
        (
            "remote.log.metadata.manager.class.name",
            Kind.STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        ),
        ("remote.log.metadata.manager.class.path", Kind.STRING, None),
        ("remote.log.metadata.manager.impl.prefix", Kind.STRING, "rlmm.config."),
        ("remote.log.metadata.manager.listener.name", Kind.STRING, None),
        ("remote.log.reader.max.pending.tasks", Kind.INT, 100),
        ("remote.log.reader.threads", Kind.INT, 10),
        ("remote.log.storage.manager.class.name", Kind.STRING, None),
        ("remote.log.storage.manager.class.path", Kind.STRING, None),
        ("remote.log.storage.manager.impl.prefix", Kind.STRING, "rsm.config."),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        KRAFT_ALONE,
        ("alter.config.policy.kraft.compatibility.enable", Kind.BOOLEAN, False),
        ("broker.heartbeat.interval.ms", Kind.INT, 2000),
        ("broker.session.timeout.ms", Kind.INT, 9000),
        ("controller.quorum.append.linger.ms", Kind.INT, 25),
        ("controller.quorum.election.backoff.max.ms", Kind.INT, 1000),
        ("controller.quorum.election.timeout.ms", Kind.INT, 1000),
        ("controller.quorum.fetch.timeout.ms", Kind.INT, 2000),
        ("controller.quorum.request.timeout.ms", Kind.INT, 2000),
        ("controller.quorum.retry.backoff.ms", Kind.INT, 20),
        ("early.start.listeners", Kind.STRING, None),
        ("eligible.leader.replicas.enable", Kind.BOOLEAN, False),
        ("initial.broker.registration.timeout.ms", Kind.INT, 60000),
        ("log.dir.failure.timeout.ms", Kind.LONG, 30000),
        ("max.request.partition.size.limit", Kind.INT, 2000),
        ("metadata.log.dir", Kind.STRING, None),
        ("metadata.log.max.record.bytes.between.snapshots", Kind.LONG, 20971520),
        ("metadata.log.max.snapshot.interval.ms", Kind.LONG, 3600000),
        ("metadata.log.segment.bytes", Kind.INT, 1073741824),
        ("metadata.log.segment.min.bytes", Kind.INT, 8388608),
        ("metadata.log.segment.ms", Kind.LONG, 604800000),
        ("metadata.max.idle.interval.ms", Kind.INT, 500),
        ("metadata.max.retention.bytes", Kind.LONG, 104857600),
        ("metadata.max.retention.ms", Kind.LONG, 604800000),
        ("server.max.startup.time.ms", Kind.LONG, LONG_MAX),
        ("telemetry.max.bytes", Kind.INT, 1048576),
        ("unclean.leader.election.interval.ms", Kind.LONG, 300000),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        MIGRATION,
        ("zookeeper.metadata.migration.min.batch.size", Kind.INT, 200),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        GROUPS,
        ("group.coordinator.append.linger.ms", Kind.INT, 10),
        ("group.coordinator.new.enable", Kind.BOOLEAN, False),
        ("group.coordinator.rebalance.protocols", Kind.LIST, "classic"),
        ("group.coordinator.threads", Kind.INT, 1),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        SHARE,
        ("group.share.enable", Kind.BOOLEAN, False),
        ("group.share.max.groups", Kind.SHORT, 10),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        INITIALIZATION,
        ("group.share.initialize.retry.interval.ms", Kind.INT, 30000),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        THREADS,
        ("share.coordinator.append.linger.ms", Kind.INT, -1),
        ("share.coordinator.threads", Kind.INT, 1),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        JVM,
        ("auto.include.jmx.reporter", Kind.BOOLEAN, True),
        ("kafka.metrics.polling.interval.secs", Kind.INT, 10),
        ("metrics.num.samples", Kind.INT, 2),
        ("metrics.recording.level", Kind.STRING, "INFO"),
        ("metrics.sample.window.ms", Kind.LONG, 30000),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        THREADS,
        ("background.threads", Kind.INT, 10),
        ("num.recovery.threads.per.data.dir", Kind.INT, 1),
        update=Update.CLUSTER_WIDE,
    ),
    *rows(
        State.WITHOUT_EFFECT,
        THREADS,
        ("num.replica.alter.log.dirs.threads", Kind.INT, None),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        KERBEROS,
        ("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit"),
        ("sasl.kerberos.min.time.before.relogin", Kind.LONG, 60000),
        ("sasl.kerberos.principal.to.local.rules", Kind.LIST, "DEFAULT"),
        ("sasl.kerberos.service.name", Kind.STRING, None),
        ("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05),
        ("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8),
        update=Update.PER_BROKER,
    ),
    *rows(
        State.WITHOUT_EFFECT,
        LOGINS,
        ("sasl.login.refresh.buffer.seconds", Kind.SHORT, 300),
        ("sasl.login.refresh.min.period.seconds", Kind.SHORT, 60),
        ("sasl.login.refresh.window.factor", Kind.DOUBLE, 0.8),
        ("sasl.login.refresh.window.jitter", Kind.DOUBLE, 0.05),
        update=Update.PER_BROKER,
    ),
    *rows(
        State.WITHOUT_EFFECT,
        PURGATORY,
        ("delete.records.purgatory.purge.interval.requests", Kind.INT, 1),
        ("fetch.purgatory.purge.interval.requests", Kind.INT, 1000),
        ("producer.purgatory.purge.interval.requests", Kind.INT, 1000),
        ("share.fetch.purgatory.purge.interval.requests", Kind.INT, 1000),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        LOADING,
        ("offsets.load.buffer.size", Kind.INT, 5242880),
        ("share.coordinator.load.buffer.size", Kind.INT, 5242880),
        ("transaction.state.log.load.buffer.size", Kind.INT, 5242880),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        SOCKETS,
        ("replica.socket.receive.buffer.bytes", Kind.INT, 65536),
        ("socket.connection.setup.timeout.max.ms", Kind.LONG, 30000),
        ("socket.connection.setup.timeout.ms", Kind.LONG, 10000),
        ("socket.receive.buffer.bytes", Kind.INT, 102400),
        ("socket.send.buffer.bytes", Kind.INT, 102400),
    ),
    *rows(
        State.WITHOUT_EFFECT,
        ZOOKEEPER_REQUESTS,
        ("zookeeper.max.in.flight.requests", Kind.INT, 10),
    ),
)
