"""The Compose runtime: the cluster of compose.yaml, as containers."""
