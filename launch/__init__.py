"""The command line, the local launcher, the single-process reference and the reports."""
