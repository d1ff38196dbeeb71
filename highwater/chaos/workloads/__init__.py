"""What real clients do while faults are injected, and what they are told.

The workload is a process of its own (`worker`), so that the harness's proxies and witnesses are
never slowed by clients that compute in Python; inside it each client is a thread, or has threads of
its own.
"""
