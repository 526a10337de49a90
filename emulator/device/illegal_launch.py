"""What a launch may be refused for."""


class LaunchError(ValueError):
    """A launch that the driver would refuse; the message says which argument and why."""


class UnmodelledError(LaunchError):
    """A launch that a driver would take, and that this machine does not carry out; the message says why."""
