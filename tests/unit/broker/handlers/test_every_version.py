"""Every handler of this package answers every version that it offers, and can answer an error."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import trio

from highwater.broker.handlers import HANDLERS
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_class,
)
from tests.unit.broker.handlers.conftest import in_broker

RAW = {0, 1}
"""Produce and Fetch read and write their bytes themselves."""
MODULES = [
    pytest.param(module, id=module.API.name) for module in HANDLERS if module.API.key not in RAW
]
NEED_A_NAME = {"group_id": "g", "transactional_id": "x", "mechanism": "PLAIN", "key": "k"}


def example(key: int, version: int) -> Any:
    """A request with every array empty and every name short."""
    cls = request_class(key)
    values: dict[str, Any] = {}
    for name, field in cls._struct.fields.items():
        if not field.for_version_q(version):
            continue
        if field.is_array():
            values[name] = []
        elif name in NEED_A_NAME:
            values[name] = NEED_A_NAME[name]
        elif field._type_str == "string":
            values[name] = "a"
        elif field._type_str == "bytes":
            values[name] = b""
    return cls(version=version, **values)


def versions(module: ModuleType) -> range:
    return range(module.API.versions[0], module.API.versions[1] + 1)


@pytest.mark.parametrize("module", MODULES)
@in_broker()
async def test_answers(b: Any, module: ModuleType) -> None:
    await b.services.logs.load("the-cluster", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.services.completions.run)
        await nursery.start(b.services.share.run)
        for version in versions(module):
            answer = await b.ask(module, version, example(module.API.key, version))
            assert answer is not None, version
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("module", MODULES)
@in_broker()
async def test_errors(b: Any, module: ModuleType) -> None:
    make = getattr(module, "error_response", None)
    if make is None:
        pytest.skip("the error is at each part, or at the top: the pool makes it")

    key = module.API.key
    for version in versions(module):
        body = bytes(encode_request(example(key, version), version))
        request = decode_request(key, version, body)
        reply = make(b.context(module, version), request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if reply.parts is not None:
            encoded = b"".join(reply.parts)
        else:
            encoded = bytes(encode_response(reply.message, version))
        decode_response(key, version, encoded)


def test_one_module_for_each_api() -> None:
    keys = [module.API.key for module in HANDLERS]
    assert len(set(keys)) == len(keys)
    for module in HANDLERS:
        assert module.__doc__
        assert f"API {module.API.key}," in module.__doc__, module.__name__
        assert module.__doc__.startswith(f"{module.API.name}, "), module.__name__
