"""Configuration in use: which property holds for a topic, a broker, a client; and how it changes.

Every broker follows /config/changes and reads anew what was named there (`config_changes`).
"""
