"""Runs real clients while faults are injected, and records the answers that they get.

The workload is a process of its own (`worker`), so that clients that compute in Python never slow
the harness's proxies and witnesses.  Inside it each client is a thread, or has threads of its own.
"""
