"""The cleaner's numbers, by Kafka's names (kafka.log:type=LogCleaner and LogCleanerManager)."""

from __future__ import annotations

from highwater.base.metrics import Registry
from highwater.broker.log.cleaner.cleaner import CleanerStats, LogCleaner
from highwater.world.api import Clock

_CLEANER, _MANAGER = "kafka_log_logcleaner_", "kafka_log_logcleanermanager_"


def register_cleaner_metrics(
    metrics: Registry, cleaner: LogCleaner, log_dirs: tuple[str, ...], clock: Clock
) -> None:
    """Registers gauges, which are computed at the scrape."""

    def last() -> list[CleanerStats]:
        return list(cleaner.last.values()) or [CleanerStats()]

    def recopied() -> float:
        read = sum(stats.bytes_read for stats in last())
        return int(100 * sum(stats.bytes_written for stats in last()) / max(1, read))

    gauges = {
        "max_buffer_utilization_percent": lambda: max(
            int(100 * stats.buffer_utilization) for stats in last()
        ),
        "cleaner_recopy_percent": recopied,
        "max_clean_time_secs": lambda: max(int(stats.elapsed_s) for stats in last()),
        "max_compaction_delay_secs": lambda: max(stats.max_delay_ms // 1000 for stats in last()),
        "deadthreadcount": lambda: 0,
    }
    for name, read in gauges.items():
        metrics.gauge(_CLEANER + name, read)
    metrics.gauge(_MANAGER + "max_dirty_percent", lambda: int(100 * cleaner.max_dirty_ratio))
    metrics.gauge(
        _MANAGER + "time_since_last_run_ms", lambda: clock.wall_ms() - cleaner.last_run_ms
    )
    for folder in log_dirs:
        metrics.gauge(
            _MANAGER + "uncleanable_partitions_count",
            lambda folder=folder: len(cleaner.uncleanable_in(folder)),  # type: ignore[misc]
            logDirectory=folder,
        )
        metrics.gauge(
            _MANAGER + "uncleanable_bytes",
            lambda folder=folder: cleaner.uncleanable_bytes(folder),  # type: ignore[misc]
            logDirectory=folder,
        )
