from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import kafka.protocol
import pytest

from highwater.kafka.wire import messages


def test_each_message_of_the_library_has_its_place() -> None:
    found = {}
    for room in ("admin", "consumer", "metadata", "producer"):
        package = importlib.import_module(f"kafka.protocol.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            name = f"{room}.{module.name}"
            names = importlib.import_module(f"kafka.protocol.{name}").__all__
            apis = {n.removesuffix("Request") for n in names if n.endswith("Request")}
            if apis:
                found[name] = apis
    assert {name: set(apis) for name, apis in messages.APIS_OF.items() if name != "sasl"} == found


def test_a_late_class_is_called_and_asked_like_its_own() -> None:
    topic = messages.CreateTopicsResponse.CreatableTopicResult  # not made yet, either
    made = messages.CreateTopicsResponse(topics=[topic(name="orders", error_code=7)])
    real = messages.CreateTopicsResponse.real()
    assert type(made) is real
    assert isinstance(made, messages.CreateTopicsResponse)
    assert not isinstance(made, messages.MetadataResponse)
    assert made.topics[0].error_code == 7
    assert messages.CreateTopicsResponse.max_version == real.max_version
    assert messages.CreateTopicsResponse[2] is real[2]
    with pytest.raises(AttributeError, match="there is no message CreateTopic"):
        _ = messages.CreateTopic
    with pytest.raises(AttributeError, match="Nothing"):
        messages.CreateTopicsResponse.Nothing()


@pytest.mark.thorough
def test_a_broker_begins_without_the_schemas_that_it_may_not_need() -> None:
    program = (
        "from highwater.kafka.wire.codecs_only import load_codecs_only; load_codecs_only()\n"
        "import sys, highwater.broker.server\n"
        "print([n for n in sys.modules if n.startswith('kafka.protocol.') and n.count('.') == 3"
        " and '.schemas.' not in n])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
    assert kafka.protocol
