"""What the broker tells of itself: the families read at a scrape, and the port that serves them.

What is counted for each request is in `request/request_metrics`, beside the requests.
"""
