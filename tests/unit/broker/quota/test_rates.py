"""Rates over windows, and buckets of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.broker.quota.rates import SampledRate, TokenBucket

SAMPLES, WINDOW = 11, 1000


def test_the_first_amount_counts_as_if_ten_windows_had_passed() -> None:
    rate = SampledRate(SAMPLES, WINDOW)
    rate.record(1000, 5000)
    assert rate.rate(5000) == 100
    assert rate.throttle_ms(100, 5000) == 0
    assert rate.throttle_ms(50, 5000) == 10_000  # twice the quota over 10 s


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = SampledRate(SAMPLES, WINDOW)
    rate.record(1000, 0)
    assert rate.rate(10_999) > 0
    assert rate.rate(11_000) == 0
    assert rate.idle(11_000)


@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 500)), min_size=1, max_size=60))
def test_a_throttled_client_gets_no_more_than_its_quota(amounts: list[tuple[int, int]]) -> None:
    rate, now, bound, total = SampledRate(SAMPLES, WINDOW), 0, 100.0, 0
    for pause, amount in amounts:
        now += pause
        rate.record(amount, now)
        total += amount
        now += rate.throttle_ms(bound, now)
    assert total <= bound * (now + SAMPLES * WINDOW) / 1000 + 500


def test_a_bucket_gives_its_burst_then_its_rate_and_debts_are_paid() -> None:
    bucket = TokenBucket(SAMPLES, WINDOW)
    assert bucket.tokens(2, 0) == 22
    bucket.take(30, 2, 0)
    assert bucket.throttle_ms(2, 0) == 4000
    assert bucket.throttle_ms(2, 3000) == 1000
    assert bucket.throttle_ms(2, 4000) == 0
    assert bucket.tokens(2, 1_000_000) == 22
