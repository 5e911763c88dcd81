"""Every error that a user can cause is defined here. A message says what you gave, what is allowed and what to do."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without its full stop, or the name of its type if it says nothing."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(".")


class SitarError(Exception):
    """This is the base of all errors that a user can cause. The command line prints the message and exits with 2."""


class ConfigError(SitarError):
    """A setting, preset, method or dataset does not exist, or has a value that is not allowed."""


class DataError(SitarError):
    """Data is missing, damaged or unusable."""


class RunError(SitarError):
    """A run folder cannot be written, read, resumed or reused."""


class ExportError(SitarError):
    """A model cannot be exported or published, or its file does not agree with it."""


class TrainingError(SitarError):
    """Training cannot go on, for example because the loss is no longer finite."""


class LostProcessError(TrainingError):
    """Another process of a run that several processes train has stopped.

    `told` says whether that process, or one before, has told the user why.
    """

    def __init__(self, told: bool = False) -> None:
        self.told = told
        super().__init__(
            "Another process of this run has ended, so all have stopped. If it said nothing, it was killed, for "
            "example because the memory was full. Continue with the same command and --resume."
        )


class InputError(SitarError, ValueError):
    """An estimator was given a parameter or an array that it cannot use. It is a ValueError, as in scikit-learn."""
