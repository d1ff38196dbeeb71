"""The broker's numbers: the families read at a scrape, and the port that serves them.

Numbers that are counted for each request are in `request/request_metrics`, beside the requests.
"""
