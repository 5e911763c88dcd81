"""Every error that a user can cause is defined here. A message says what you gave, what is allowed and what to do."""


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


class InputError(SitarError, ValueError):
    """An estimator was given a parameter or an array that it cannot use. It is a ValueError, as in scikit-learn."""
