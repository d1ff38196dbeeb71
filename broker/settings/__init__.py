"""Configuration in use: the property in force for a topic, a broker, a client; and its changes.

Every broker follows /config/changes and reads again what is named there (`config_changes`).
"""
