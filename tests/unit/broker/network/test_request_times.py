"""The seven times of a request: on every path they add up to the total."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highwater.base.loop_steps import LONG_NS, NOTED_NS, LoopSteps, StepInstrument
from highwater.base.metrics import WINDOW_NS
from highwater.broker.context import Context, Delayed, Plane, Reply
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.request_metrics import ApiMetrics
from highwater.broker.request.response import Extra, NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.world.real.network import RealNetwork

from .conftest import PlainNetwork, entry, serving

QUIET = b"acks=0"
PARTS = ("queue", "local", "remote", "response_queue", "send")


class Overlapping(DelayedOperation):
    """Waits as a Produce does: the connection's next request may come."""

    kind: ClassVar[str] = "Produce"
    overlaps: ClassVar[bool] = True

    def __init__(self, timeout_ms: int) -> None:
        self.keys = ["k"]
        self.timeout_ms = timeout_ms

    def try_complete(self) -> Response | None:
        return None

    def on_expire(self) -> Response:
        return Response(parts=[b"late"], throttle_ms=self.timeout_ms % 3)


async def handle(ctx: Context, body: memoryview) -> Reply:
    what = bytes(body)
    if what == b"slow":
        await trio.sleep(0.001)
    elif what.startswith(b"wait"):
        return Delayed(Overlapping(int(what[4:])))
    elif what == QUIET:
        return NoResponse()
    elif what == b"fail":
        raise ApiError(ErrorCode.NOT_COORDINATOR)
    elif what == b"convert":
        return Response(parts=[b"x"], extra=Extra(4096, 7_000_000))
    return Response(parts=[what * 3])


def refused(ctx: Context, message: Any, code: ErrorCode) -> Response:
    return Response(parts=[code.name.encode()])


ONE = st.one_of(
    st.sampled_from([b"", b"now", b"slow", b"fail", b"convert", QUIET, b"x" * 100_000]),
    st.integers(1, 8).map(lambda ms: b"wait%d" % ms),
)


@pytest.mark.thorough
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(ONE, min_size=1, max_size=14), min_size=1, max_size=3),
    st.sampled_from([RealNetwork, PlainNetwork]),
    st.booleans(),
)
def test_times_add_up_whatever_happens(
    clients: list[list[bytes]], network: type[RealNetwork | PlainNetwork], pipelined: bool
) -> None:
    trio.run(check, clients, network(), pipelined)


async def check(
    clients: list[list[bytes]], network: RealNetwork | PlainNetwork, pipelined: bool
) -> None:
    finished: list[list[int]] = []
    apis = entry(handle, key=1, error_response=refused), entry(handle, key=9)
    async with serving(network, *apis) as s:
        on_sent = s.server.on_sent

        def spy(request: Any, now: int) -> None:
            r = request
            finished.append([r.received, r.taken, r.handled, r.ready, r.taken_back, now])
            on_sent(request, now)

        for processor in s.server.planes[Plane.DATA].processors:
            processor._on_sent = spy

        async def one(bodies: list[bytes]) -> None:
            client = await s.connect()
            for body in bodies:
                await client.send(body, key=1)
                if not pipelined and body != QUIET:
                    await client.receive()
            for body in bodies if pipelined else ():
                if body != QUIET:
                    await client.receive()

        async with trio.open_nursery() as nursery:
            for bodies in clients:
                nursery.start_soon(one, bodies)
        count = sum(map(len, clients))
        while len(finished) < count:  # an answer may arrive before it is accounted for
            await trio.sleep(0)
        for stamps in finished:
            assert stamps[0] > 0
            assert all(earlier <= later for earlier, later in pairwise(stamps)), stamps
        apis_measured = list(s.services.metrics.requests.values())
        assert sum(api.count for api in apis_measured) == count
        for api in apis_measured:
            api.fold()
            assert sum(getattr(api, part).sum_ns for part in PARTS) == api.total.sum_ns
        assert sum(api.total.sum_ns for api in apis_measured) == sum(f[-1] - f[0] for f in finished)
        converted = [api.conversions for api in apis_measured]
        bodies = [body for of_one in clients for body in of_one]
        local = sum(api.local.sum_ns for api in apis_measured)
        assert local >= 1_000_000 * bodies.count(b"slow")
        assert sum(c.sum_ns for c in converted) == 7_000_000 * bodies.count(b"convert")


async def test_throttle_time_is_recorded_apart() -> None:
    def throttled(ctx: Context, body: memoryview) -> Response:
        return Response(parts=[b""], throttle_ms=200 if body[0] else 0)

    async with serving(RealNetwork(), entry(throttled, key=9)) as s:
        client = await s.connect()
        began = trio.current_time()
        await client.call(b"\1", key=9)
        await client.call(b"\0", key=9)
        assert trio.current_time() - began > 0.19, "it was muted"
        api: ApiMetrics = s.services.metrics.requests["OffsetFetch"]
        while api.count < 2:
            await trio.sleep(0)
        assert (api.throttle.count, api.throttle.sum_ns) == (1, 200_000_000)
        assert sum(getattr(api, part).sum_ns for part in PARTS) == api.total.sum_ns < 200_000_000


def test_long_steps_are_told_by_name_and_forgotten_after_two_windows() -> None:
    steps = LoopSteps()
    steps.note("handler Metadata", LONG_NS + 1)
    steps.note("handler Metadata", NOTED_NS + 1)
    steps.note("controller", NOTED_NS + 5)
    assert list(steps.longest().items()) == [
        ("handler Metadata", LONG_NS + 1),
        ("controller", NOTED_NS + 5),
    ]
    assert steps.over_limit == {"handler Metadata": 1}
    names = {f.name: list(f.samples) for f in steps.families(WINDOW_NS)}
    assert names["highwater_loop_longeststepms"][0].value > 20
    list(steps.families(2 * WINDOW_NS))
    assert steps.longest() == {}
    assert steps.over_limit == {"handler Metadata": 1}, "a counter keeps what it counted"


class Meter:
    """The time, and how much of it was not the task's own; as `loop_steps.Stolen`, too."""

    def __init__(self) -> None:
        self.time, self.count = 1, 0

    def cpu(self) -> int:
        return 1

    def now(self) -> bytes:
        return b"%d" % self.count

    def since(self, before: bytes) -> int:
        return self.count - int(before)


def measured(meter: Meter, *costs: tuple[int, int], **told: Any) -> LoopSteps:
    """A task whose steps take and count so much; the last one is a handler's as well."""
    steps = LoopSteps()

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        for took, counted in costs:
            meter.time += took
            meter.count += counted
            if (took, counted) == costs[-1]:
                steps.note("handler", took)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, name="task")

    trio.run(main, instruments=[StepInstrument(steps, lambda: meter.time, **told)])
    return steps


def test_the_instrument_sees_a_task_that_keeps_the_loop() -> None:
    assert measured(Meter(), (LONG_NS + 1, 0)).longest() == {
        "handler": LONG_NS + 1,
        "task": LONG_NS + 1,
    }


@pytest.mark.parametrize(
    ("meter", "took", "first", "second", "apart", "longest"),
    [
        # without a CPU
        ("cpu_wait_ns", LONG_NS + NOTED_NS, NOTED_NS + 1, 0, "waited", LONG_NS + NOTED_NS),
        # a hypervisor had taken it
        ("stolen", 2 * LONG_NS, LONG_NS + NOTED_NS, LONG_NS - NOTED_NS, "waited",
         LONG_NS + NOTED_NS),
        # in a system call that waits: everybody waited for so long all the same
        ("cpu_ns", 2 * LONG_NS, NOTED_NS, LONG_NS + 1, "blocked", 2 * LONG_NS),
        # in calls on files that compute: the kernel looks for memory
        ("calls_ns", 2 * LONG_NS, LONG_NS + 1, LONG_NS - 1, "blocked", 2 * LONG_NS),
    ],
)  # fmt: skip
def test_what_is_not_a_steps_own_is_counted_apart(
    meter: str, took: int, first: int, second: int, apart: str, longest: int
) -> None:
    """The first step is long because of it alone, the second one by itself."""
    meters = Meter()
    told: dict[str, Any] = {meter: lambda: meters.count}
    if meter == "stolen":
        told = {"stolen": meters}
    steps = measured(meters, (took, first), (took, second), **told)
    assert getattr(steps, apart) == {"task": 1}
    assert steps.over_limit == {"task": 1, "handler": 1}
    assert steps.longest() == {"task": longest, "handler": longest}


class Asked(Meter):
    """Counts how often it is asked for the stolen time."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def now(self) -> bytes:
        self.times += 1
        return super().now()


@pytest.mark.parametrize(("took", "times"), [(NOTED_NS + 1, 1), (LONG_NS + 1, 2)])
def test_the_stolen_time_is_asked_for_anew_only_behind_a_long_step(took: int, times: int) -> None:
    """The question costs more than most steps, and only a long step needs the answer."""
    meter = Asked()
    measured(meter, (took, 0), (1, 0), stolen=meter)
    assert meter.times == times


@pytest.mark.parametrize(
    ("body", "name"), [(b"\xff\xff\xff\xff", "FetchConsumer"), (b"\0\0\0\1", "FetchFollower")]
)
async def test_fetches_are_apart_and_together(body: bytes, name: str) -> None:
    def answer(ctx: Context, message: memoryview) -> Response:
        return Response(parts=[b""])

    async with serving(RealNetwork(), entry(answer)) as s:
        client = await s.connect()
        await client.call(body)
        metrics = s.services.metrics
        while name not in metrics.requests or not metrics.requests[name].count:
            await trio.sleep(0)
        apis = metrics.by_name()
        assert sorted(apis) == ["Fetch", name]
        assert apis["Fetch"].total.sum_ns == apis[name].total.sum_ns > 0
