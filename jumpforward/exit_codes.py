"""What the process ends with."""

OK = 0
REQUEST_ERROR = 1
USAGE_ERROR = 2
INTERRUPTED = 130
READER_GONE = 141
