"""What processes log, as lines on stderr that look like those of the commands, after the time."""

import logging


def log_to_stderr(level: str) -> None:
    """Let this process log from a level on, as debug, info, warning or error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logging.basicConfig(handlers=[handler])  # other packages have nothing to say but warnings
    logging.getLogger("dncfl").setLevel(level.upper())


class _Lines(logging.Formatter):
    """The time, so that the lines of several machines can be compared, and the level unless it is info."""

    def format(self, record: logging.LogRecord) -> str:
        kind = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"{self.formatTime(record, '%H:%M:%S')} {kind}{super().format(record)}"
