"""The exit codes of `toolspeak`, as docs/reference/command-line.md documents them."""

ANSWERED = 0
NO_ANSWER = 1
USAGE = 2
AWAITING_APPROVAL = 3
SUSPENDED = 4  # or it waits for a worker, a time or an event
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
