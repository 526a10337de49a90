"""What crosses from one process to another: jobs and events, what a kernel is and how it is launched, and what a device
does."""
