"""Real clients at work while faults are injected, and the answers to them.

The workload is a process of its own (`worker`), so that clients that compute in Python never slow
the harness's proxies and witnesses.  Inside it each client is a thread, or has threads of its own.
"""
