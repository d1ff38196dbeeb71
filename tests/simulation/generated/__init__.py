"""Mutants that are made by rule, and what the simulation finds of them.

`maker` reads the broker's and the controller's sources and makes every mutant that its rules
allow.  `reach` notes which seeds run which statements.  `samples` draws a stratified sample, and
`trials` runs each mutant of it on seeds that run its statement, in a process of its own (`trial`).
`page` adds the rows up.  Only seeds find a mutant here: no unit test is run.

    python -m tests.simulation.generated count       how many there are, by room and rule
    python -m tests.simulation.generated reach       which seeds run which statements
    python -m tests.simulation.generated run         the sample; goes on where it was cut off
    python -m tests.simulation.generated page        docs/mutants-generated.md
"""
