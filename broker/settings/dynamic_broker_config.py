"""Dynamic broker configuration: properties that change while the broker runs (KIP-226).

/config/brokers/N is for broker N, /config/brokers/<default> for all brokers.  A value set for the
broker wins over the default, and both win over the broker's file; without them the file's value
holds again.  Every broker follows /config/changes, and reads both znodes again.

The table of configuration says which properties can be changed
(`kafka/config/property_table.DYNAMIC`), and which are stored without effect, as at the start
(`INERT`).  Kafka allows more: listeners, and the rest of security.  These are refused rather than
stored, because nothing here would follow them.

A name that Kafka does not know is stored for plugins, which read such names.  Its value may be a
secret, so it is neither described nor logged.

A listener's key and trust store are read again, from the same file or another, when its
`listener.name.NAME.ssl.keystore.location` (`ssl.truststore.location`) is set, even to the same
value.  A store that cannot be used is refused.  Passwords stay as they are at the start.  A
listener's own `max.connections` and `max.connection.creation.rate` can be changed, too.

The rates of replication throttles (`throttles.RATES`) can only be set in this way: the file has no
properties for them.

Source: kafka.server.DynamicBrokerConfig.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from highwater.broker.quota.listener_limits import LIMIT, limits_of
from highwater.broker.replica.throttles import RATES
from highwater.kafka.config import LONG_MAX
from highwater.kafka.config.checks import ConfigError, check, is_secret, parse_value
from highwater.kafka.config.property_row import Property, Update
from highwater.kafka.config.property_table import BROKER, DYNAMIC
from highwater.kafka.config.unserved import inert, of_listener, unserved
from highwater.kafka.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from highwater.kafka.config import Config

log = logging.getLogger(__name__)

DEFAULT = "<default>"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
"""The controller reads it when it elects, and is notified when it becomes true."""
_STORE = re.compile(r"listener\.name\.[^.]+\.ssl\.(?:keystore|truststore)\.(?:location|type)")
_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(?P<base>.*)")


def of_listener_form(name: str) -> str | None:
    """A listener's property without the listener; None for any other name."""
    found = _OF_LISTENER.fullmatch(name)
    return None if found is None else found["base"]


def is_foreign(name: str) -> bool:
    """Whether Kafka does not know the name, which may then be a plugin's."""
    base = of_listener_form(name) or name
    return base not in BROKER and base not in RATES and unserved(name) is None


def is_sensitive(name: str) -> bool:
    """Whether the value is never shown, because it is a secret or the name is unknown."""
    return is_secret(name) or is_foreign(name)


class DynamicBrokerConfig:
    """The configuration of one broker.  `config` is changed in place, so that code that reads it at
    each use gets the new values.

    `on_change` gets the names of the changed properties, for parts that keep copies.
    """

    def __init__(self, config: Config) -> None:
        self.own: dict[str, str] = {}
        self.default: dict[str, str] = {}
        self.on_change: Callable[[Sequence[str]], None] = lambda names: None
        self.stores: Callable[[Mapping[str, str]], Callable[[], None]] = lambda changes: (
            lambda: None
        )
        """Reads the stores again, with these properties, and returns a function that puts them in
        use; raises ConfigError."""
        self.limits: Callable[[Mapping[str, str]], None] = lambda changes: None
        """Puts the listeners' own limits of connections in use."""
        self.rates: dict[str, int] = {}
        """Bytes a second, by the names in RATES, if set."""
        self._config = config
        self._static = {name: getattr(config, row.attribute) for name, row in DYNAMIC.items()}

    def configured(self, entity: str, properties: Mapping[str, str]) -> None:
        """Applies /config/brokers/`entity`; ignores another broker's."""
        if entity == DEFAULT:
            self.default = dict(properties)
        elif entity == str(self._config.broker_id):
            was, self.own = self.own, dict(properties)
            if stores_of(was) or stores_of(self.own):
                self._reload()
            if limits_of(was) != limits_of(self.own):
                self._limit_listeners()
        else:
            return
        self._tell_unheeded(entity, properties)
        changed = {
            name: value
            for name, value in self._effective().items()
            if getattr(self._config, DYNAMIC[name].attribute) != value
        }
        self._config.change({DYNAMIC[name].attribute: v for name, v in changed.items()})
        rates = self._effective_rates()
        changed |= {n: rates.get(n) for n in RATES if rates.get(n) != self.rates.get(n)}
        self.rates = rates
        if changed:
            log.info("dynamic configuration: %s", changed)
            self.on_change(tuple(changed))

    def _reload(self) -> None:
        changes = stores_of(self.own)
        try:
            self.stores(changes)()
        except ConfigError as e:
            log.error("key and trust stores stay as they were: %s", e)
        else:
            log.info("key and trust stores were read again; set: %s", sorted(changes))

    def _limit_listeners(self) -> None:
        limits = limits_of(self.own)
        try:
            self.limits(limits)
        except ConfigError as e:
            log.error("the listeners' limits stay as they were: %s", e)
        else:
            log.info("the listeners' limits of connections; set: %s", limits)

    def _tell_unheeded(self, entity: str, properties: Mapping[str, str]) -> None:
        """Logs properties without effect, which an older or another broker may have set."""
        passed_over = sorted(
            n
            for n in properties
            if n not in DYNAMIC and n not in RATES and not is_foreign(n) and not _own_form(n)
        )
        if passed_over:
            names = ", ".join(passed_over)
            log.warning("configuration of brokers/%s without effect here: %s", entity, names)

    def _effective_rates(self) -> dict[str, int]:
        given = {n: v for n, v in {**self.default, **self.own}.items() if n in RATES}
        return {n: int(v) for n, v in given.items() if v.strip().isdecimal()}

    def _effective(self) -> dict[str, Any]:
        values = dict(self._static)
        for given in (self.default, self.own):
            for name, text in given.items():
                if name in values:
                    try:
                        values[name] = parse_value(DYNAMIC[name], text)
                    except ConfigError as e:
                        log.warning("dynamic configuration: %s", e)
        return values

    def check(self, entity: str, properties: Mapping[str, str]) -> None:
        """Raises ApiError for properties that cannot be set, alone or with the others."""
        values: dict[str, Any] = {}
        for name, text in properties.items():
            if name in RATES:
                _check_rate(name, text)
                continue
            if (asked := unserved(name)) is not None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} cannot be set: {asked.problem}")
            if is_foreign(name) or (entity == DEFAULT and _own_form(name)):
                _check_foreign(entity, name)
                continue
            if _STORE.fullmatch(name):
                continue
            if (row := inert(name)) is not None:
                _check_inert(entity, name, row, text)
                continue
            if LIMIT.fullmatch(name):
                self._check_limit(entity, name, text)
                continue
            if name not in self._static:
                detail = f"{name} cannot be changed while a broker runs"
                raise ApiError(ErrorCode.INVALID_REQUEST, detail)
            try:
                values[DYNAMIC[name].attribute] = parse_value(DYNAMIC[name], text)
            except ConfigError as e:
                raise ApiError(ErrorCode.INVALID_REQUEST, str(e)) from e
        self._check_stores(entity, stores_of(properties))
        for name, row in DYNAMIC.items():
            holds = entity != DEFAULT or name not in self.own
            if row.doubles and name in properties and holds:
                self._check_threads(name, values[row.attribute])
        complaints = check(dataclasses.replace(self._config, **values))
        if complaints:
            raise ApiError(ErrorCode.INVALID_REQUEST, complaints[0])

    def _check_limit(self, entity: str, name: str, text: str) -> None:
        if entity == str(self._config.broker_id):
            self._check_listener(name)
        row = of_listener(name)
        assert row is not None
        try:
            parse_value(row, text)
        except ConfigError as e:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(e)) from e

    def _check_listener(self, name: str) -> None:
        listeners = {e.listener.lower() for e in self._config.parsed_listeners.bound}
        if name.split(".")[2] not in listeners:
            known = ", ".join(sorted(listeners))
            detail = f"{name}: there is no such listener; there are {known}"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)

    def _check_stores(self, entity: str, changes: Mapping[str, str]) -> None:
        if not changes or entity != str(self._config.broker_id):
            return
        for name in changes:
            self._check_listener(name)
        try:
            self.stores(changes)
        except ConfigError as e:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(e)) from e

    def _check_threads(self, name: str, wanted: int) -> None:
        """Raises ApiError for a change by more than a factor of two, as Kafka does."""
        now = getattr(self._config, DYNAMIC[name].attribute)
        if wanted < 1:
            detail = f"{name}={wanted}: must be at least 1"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)
        if wanted < now // 2 or wanted > now * 2:
            detail = f"{name}={wanted}: must be from half to twice the current value, {now}"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)


def stores_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of stores, which can be read again."""
    return {name: value for name, value in properties.items() if _STORE.fullmatch(name)}


def _own_form(name: str) -> bool:
    """Whether the name is a listener's own form of a property that can be changed."""
    return bool(_STORE.fullmatch(name) or LIMIT.fullmatch(name))


def _check_foreign(entity: str, name: str) -> None:
    if entity == DEFAULT and _OF_LISTENER.fullmatch(name):
        detail = f"{name} belongs to a listener: set it for one broker, by its id"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)


def _check_inert(entity: str, name: str, row: Property, text: str) -> None:
    """Checks a property that is stored without effect; its value must be of its type."""
    if entity == DEFAULT and (row.update is Update.PER_BROKER or _OF_LISTENER.fullmatch(name)):
        detail = f"{name} cannot be set for all brokers: set it for one, by its id"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    try:
        parse_value(row, text)
    except ConfigError as e:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(e)) from e


def _check_rate(name: str, text: str) -> None:
    digits = text.strip()
    if not (digits.isdecimal() and len(digits) < 20) or int(digits) > LONG_MAX:
        detail = f"{name}={text}: must be a number of bytes a second, from 0 to {LONG_MAX}"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
