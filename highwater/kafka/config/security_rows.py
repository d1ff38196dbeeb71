"""The rows of security on the wire: read as text for each listener (`kafka/security/settings`).

They are no fields of `Config`, so that nothing that shows a configuration shows a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from highwater.kafka.config.property_row import Kind, Property

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
TOKEN_CHECKS = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
)
"""Kafka's classes that check signed tokens (two names of one), and unsigned ones."""
_TLS = "highwater.kafka.security.tls"
_STORES = "test_tls::test_a_listener_takes_each_form_of_key_store"
_TRUST = "test_tls::test_a_trust_store_says_whose_certificates_are_accepted"


def among(*known: str) -> Callable[[str], str | None]:
    def wrong(value: str) -> str | None:
        items = [item.strip() for item in value.split(",") if item.strip()]
        unknown = [item for item in items if item not in known]
        if items and not unknown:
            return None
        problem = f"{unknown[0]!r} is not a value of it" if unknown else "it names nothing"
        return f"{problem}; use {' or '.join(known)}"

    return wrong


def identification(value: str) -> str | None:
    if value.lower() in ("", "https"):
        return None
    return "not a way to check names; use https, or leave the value empty for no check"


def _principals(value: str) -> str | None:
    names = [name.strip() for name in value.split(";") if name.strip()]
    wrong = next((name for name in names if not all(name.partition(":"))), None)
    return None if wrong is None else f"{wrong!r} is not TYPE:NAME; write User:{wrong}"


def _ways_to_check(value: str) -> str | None:
    if not value or value in TOKEN_CHECKS:
        return None
    return f"of Java classes SASL knows only {TOKEN_CHECKS[0]} and its like; remove it"


def _tls(name: str, test: str, doc: str, kind: Kind = Kind.STRING, **more: object) -> Property:
    return Property(name=name, kind=kind, test=test, doc=doc, read_by=_TLS, **more)  # type: ignore[arg-type]


_LATER = {"update": "of a listener only the locations of its stores change; the rest stays"}

TLS_ROWS: Sequence[Property] = (
    _tls(
        "ssl.keystore.location",
        _STORES,
        "The file with the broker's private key and its chain of certificates, PEM or PKCS12.",
        differs=_LATER,
    ),
    _tls(
        "ssl.keystore.password",
        _STORES,
        "The password of a PKCS12 key store.",
        Kind.PASSWORD,
        differs=_LATER,
    ),
    _tls(
        "ssl.keystore.key",
        _STORES,
        "The private key as PEM text, in place of a file.",
        Kind.PASSWORD,
        differs=_LATER,
    ),
    _tls(
        "ssl.keystore.certificate.chain",
        _STORES,
        "The chain of certificates as PEM text, for ssl.keystore.key.",
        Kind.PASSWORD,
        differs=_LATER,
    ),
    _tls(
        "ssl.key.password",
        _STORES,
        "The password of an encrypted PEM key.",
        Kind.PASSWORD,
        differs=_LATER,
    ),
    _tls(
        "ssl.truststore.location",
        _TRUST,
        "The file with the certificates of trusted authorities, PEM or PKCS12; the system's, "
        "if unset.",
        differs=_LATER,
    ),
    _tls(
        "ssl.truststore.password",
        _TRUST,
        "The password of a PKCS12 trust store.",
        Kind.PASSWORD,
        differs=_LATER,
    ),
    _tls(
        "ssl.truststore.certificates",
        _TRUST,
        "The certificates of trusted authorities as PEM text, in place of a file.",
        Kind.PASSWORD,
        differs=_LATER,
    ),
    _tls(
        "ssl.client.auth",
        "test_tls::test_client_authentication",
        "Whether clients must show a certificate, may, or are not asked; on SASL_SSL only a "
        "listener's own value counts.",
        default="none",
        choices=("required", "requested", "none"),
        differs=_LATER,
    ),
    _tls(
        "ssl.enabled.protocols",
        "test_tls::test_only_enabled_versions_are_spoken",
        "The versions of TLS, out of TLSv1.2 and TLSv1.3.",
        Kind.LIST,
        default="TLSv1.2,TLSv1.3",
        wrong=among("TLSv1.2", "TLSv1.3"),
        differs=_LATER,
    ),
    _tls(
        "ssl.endpoint.identification.algorithm",
        "test_tls::test_the_name_of_the_other_broker_is_checked",
        "`https` has a broker check that another broker's certificate is for its host; empty: no "
        "check.",
        default="https",
        wrong=identification,
        differs=_LATER,
    ),
    _tls(
        "ssl.principal.mapping.rules",
        "test_principals::test_rules_are_tried_in_turn",
        "How a client's principal is made from the name in its certificate.",
        default="DEFAULT",
    ),
)

STORE_TYPES: Sequence[Property] = tuple(
    Property(
        name=name,
        kind=Kind.STRING,
        default="JKS",
        wrong=among("JKS", "PKCS12", "PEM"),
        read_by="highwater.kafka.config.security_rows",
        test=_STORES,
        doc="The format of the store; its content decides, whatever is said here.",
        differs=_LATER,
    )
    for name in ("ssl.keystore.type", "ssl.truststore.type")
)
_SASL = "highwater.kafka.security.sasl"
_LOGINS = {"update": "logins are read at the start alone"}
_OAUTH = "highwater.kafka.security.oauth"
_CLAIMS = "test_oauth::test_what_a_signed_token_has_to_be"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_ROWS: Sequence[Property] = (
    Property(
        name="sasl.enabled.mechanisms",
        kind=Kind.LIST,
        default="GSSAPI",
        wrong=among("GSSAPI", *MECHANISMS, "OAUTHBEARER"),
        read_by=_SASL,
        test="test_sasl::test_only_enabled_mechanisms_are_taken",
        doc="The mechanisms of a SASL listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. "
        "GSSAPI, the default, is not built: no SASL listener starts with it.",
        differs=_LOGINS,
    ),
    Property(
        name="sasl.mechanism.inter.broker.protocol",
        kind=Kind.STRING,
        default="GSSAPI",
        wrong=among("GSSAPI", *MECHANISMS),
        read_by=_SASL,
        test="test_sasl::test_a_broker_logs_in_to_another",
        doc="The mechanism by which brokers log in to each other.",
        differs=_LOGINS,
    ),
    Property(
        name="sasl.jaas.config",
        kind=Kind.PASSWORD,
        read_by=_SASL,
        test="test_sasl::test_where_the_jaas_entry_is_looked_for",
        doc="The JAAS entry: PLAIN's users, and the broker's own user; a listener's mechanism has "
        "its own at `listener.name.NAME.MECHANISM.sasl.jaas.config`.",
        differs=_LOGINS,
    ),
    Property(
        name="sasl.server.max.receive.size",
        kind=Kind.INT,
        default=524288,
        read_by=_SASL,
        test="test_sasl::test_a_stranger_may_send_little",
        doc="The largest request of a client that is not authenticated, in bytes.",
    ),
    Property(
        name="connections.max.reauth.ms",
        kind=Kind.LONG,
        default=0,
        read_by=_SASL,
        test="test_sasl::test_a_session_ends_and_is_renewed",
        doc="After how many milliseconds a client must have authenticated again; 0: never.",
    ),
    Property(
        name="connection.failed.authentication.delay.ms",
        kind=Kind.INT,
        default=100,
        at_least=0,
        read_by=_SASL,
        test="test_sasl::test_a_wrong_password_is_answered_late_and_closes",
        doc="After how many milliseconds a failed authentication is answered, and the connection "
        "closed.",
    ),
)
OAUTH_ROWS: Sequence[Property] = tuple(
    Property(
        name=name,
        kind=kind,
        default=default,
        read_by=_OAUTH,
        test=_CLAIMS,
        doc=doc,
    )
    for name, kind, default, doc in (
        (
            "sasl.oauthbearer.jwks.endpoint.url",
            Kind.STRING,
            None,
            "The file (file:///…) with the keys that sign OAUTHBEARER tokens; without it, tokens "
            "are taken without a signature, for tests.",
        ),
        (
            "sasl.oauthbearer.expected.issuer",
            Kind.STRING,
            None,
            "The issuer (iss) that a token must have.",
        ),
        (
            "sasl.oauthbearer.expected.audience",
            Kind.LIST,
            None,
            "The audiences (aud) of which a token must have one.",
        ),
        (
            "sasl.oauthbearer.clock.skew.seconds",
            Kind.INT,
            30,
            "By how many seconds the clocks of issuer and broker may differ.",
        ),
        (
            "sasl.oauthbearer.sub.claim.name",
            Kind.STRING,
            "sub",
            "The claim that names the user.",
        ),
    )
)
HANDLER = Property(
    name="sasl.server.callback.handler.class",
    kind=Kind.CLASS,
    default=None,
    wrong=_ways_to_check,
    read_by=_OAUTH,
    test="test_oauth::test_properties_that_cannot_be_used",
    doc="For OAUTHBEARER, Kafka's name of the way to check tokens: "
    "OAuthBearerValidatorCallbackHandler, or OAuthBearerUnsecuredValidatorCallbackHandler.",
)
_TOKENS = "highwater.kafka.security.delegation_tokens"
TOKEN_ROWS: Sequence[Property] = tuple(
    Property(
        name=name,
        kind=Kind.PASSWORD,
        read_by=_TOKENS,
        test="test_delegation_tokens::test_a_token_is_its_owners_on_every_broker",
        doc=doc,
    )
    for name, doc in (
        (
            "delegation.token.secret.key",
            "The key by which the HMACs of delegation tokens are made, the same on all brokers; "
            "without it there are no tokens.",
        ),
        (
            "delegation.token.master.key",
            "The former name of delegation.token.secret.key, which goes before it.",
        ),
    )
)
_AUTHORIZER = "highwater.broker.settings.authorizer"
AUTHORIZER_ROWS: Sequence[Property] = (
    Property(
        name="super.users",
        kind=Kind.STRING,
        default="",
        wrong=_principals,
        read_by=_AUTHORIZER,
        test="test_acls::test_what_each_api_answers",
        doc="Users who may do everything: User:admin;User:broker; the brokers' principals belong "
        "here.",
    ),
    Property(
        name="allow.everyone.if.no.acl.found",
        kind=Kind.BOOLEAN,
        default=False,
        read_by=_AUTHORIZER,
        test="test_acls::test_a_resource_without_rules",
        doc="Whether a resource without access rules is open to everybody.",
    ),
)
SECURITY: Sequence[Property] = (
    *TLS_ROWS,
    *STORE_TYPES,
    *SASL_ROWS,
    *OAUTH_ROWS,
    HANDLER,
    *TOKEN_ROWS,
    *AUTHORIZER_ROWS,
)
