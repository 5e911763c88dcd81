"""Every error a user can cause. A message says what you gave, what is allowed and what to do."""


class SitarError(Exception):
    """Root of all errors a user can cause: the command line prints the message and exits with 2."""


class ConfigError(SitarError):
    """A setting, preset, method or dataset that does not exist or has a value that is not allowed."""


class DataError(SitarError):
    """Data that is missing, damaged or unusable."""


class RunError(SitarError):
    """A run folder that cannot be written, read, resumed or reused."""


class TrainingError(SitarError):
    """Training that cannot go on, such as a loss that is no longer finite."""
