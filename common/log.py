"""What processes log, as lines on stderr that look like those of the commands: plain, or after `warning: `."""

import logging


def log_to_stderr(level: str) -> None:
    """Let this process log from a level on, as debug, info, warning or error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if record.levelno == logging.INFO else f"{record.levelname.lower()}: {line}"
