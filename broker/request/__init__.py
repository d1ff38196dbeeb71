"""What a request needs on its way, whatever its API: its answer, its wait, its times."""
