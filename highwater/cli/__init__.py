"""The command `highwater`: one module for each subcommand, loaded when it is called."""
