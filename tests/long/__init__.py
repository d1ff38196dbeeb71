"""Runs that take too long for CI: `scripts/long NAME`, one command each, and resumable."""
