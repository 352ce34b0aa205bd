"""The command line: one file a group of commands, `main` ties them together. Nothing here imports torch."""
