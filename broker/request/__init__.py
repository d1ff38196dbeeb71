"""The parts of a request that do not depend on its API: its answer, its wait, its times."""
