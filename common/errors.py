"""The exceptions that a user may meet.

    DncflError
    ├── ConfigError      a setting is impossible, unknown or contradicts another
    ├── DataError        the data set is missing, unreadable or too small, or a user's code that loads it raised an error
    ├── StorageError     a run folder cannot be written or read
    ├── NetworkError     an address cannot be used, or the other side does not answer
    │   └── AccessDenied     the other side does not admit this one's key, or has another key than expected
    ├── NodeFailed       a node stopped with an error; the run cannot go on
    ├── RunStopped       the PS ended the run before its last round
    ├── UpdateRefused    a local update holds NaN or infinite values
    ├── WireError        a frame off the network is malformed
    ├── ChecksumError    a decoded message does not prove itself
    ├── ProtocolError    an event came that the protocol does not allow: a defect in dncfl
    ├── ModelError       a user's model raised an error in training or evaluation
    ├── ReplayMismatch   a recomputed model differs from the recorded one
    ├── BenchmarkError   what is compared does not give the same result
    ├── InjectedFault    a fault on purpose asked for this error
    ├── TrialsFailed     a trial by fault did not end as it must
    └── RunsFailed       some runs of a sweep failed

Each class carries the exit code of a command that ends with it.
"""


class DncflError(Exception):
    """Base of all errors that dncfl raises on purpose; its text is one or more lines for a person."""

    exit_code = 1


class ConfigError(DncflError):
    """A setting is impossible, unknown or contradicts another one."""

    exit_code = 2


class DataError(DncflError):
    """The data set is missing, unreadable or too small for the partition."""

    exit_code = 3


class StorageError(DncflError):
    """A run folder cannot be written or read."""

    exit_code = 4


class NetworkError(DncflError):
    """An address cannot be used, or the other side does not answer."""

    exit_code = 5


class AccessDenied(NetworkError):
    """The other side does not admit this one's key, or cannot prove that it is who is expected there."""

    exit_code = 13


class NodeFailed(DncflError):
    """A node stopped with an error or fell silent, so that the run cannot go on."""

    exit_code = 6


class RunStopped(DncflError):
    """The PS ended the run before its last round; a node ends with it."""

    exit_code = 6


class UpdateRefused(DncflError):
    """A local update holds NaN or infinite values and is not sent."""

    exit_code = 7


class WireError(DncflError):
    """A frame off the network is malformed."""

    exit_code = 8


class ChecksumError(DncflError):
    """A decoded message does not prove itself by its checksum."""

    exit_code = 8


class ProtocolError(DncflError):
    """An event came that the protocol does not allow in its state: a defect in dncfl itself."""

    exit_code = 9


class ReplayMismatch(DncflError):
    """The recomputed model differs from the recorded one."""

    exit_code = 10


class ModelError(DncflError):
    """A user's model raised an error in training or evaluation; the text holds its traceback."""

    exit_code = 11


class BenchmarkError(DncflError):
    """Two ways that a benchmark compares do not give the same result, so that their times mean nothing."""

    exit_code = 12


class TrialsFailed(DncflError):
    """A trial by fault did not end as it must."""

    exit_code = 14


class RunsFailed(DncflError):
    """Some runs of a sweep failed; the others are done."""

    exit_code = 15


class InjectedFault(DncflError):
    """An error that a fault on purpose asked for."""

    exit_code = 16
