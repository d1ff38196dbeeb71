"""The configuration in use for topics, brokers and clients, and its changes.

Every broker follows /config/changes, and reads again what is named there (`config_changes`).
"""
