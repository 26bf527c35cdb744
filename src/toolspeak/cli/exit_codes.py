"""The exit codes of `toolspeak`, as docs/reference/command-line.md documents them."""

SUCCESS = 0
NO_ANSWER = 1
USAGE = 2
AWAITING_APPROVAL = 3
SUSPENSION = 4  # or it waits for a worker, a time or an event
INTERRUPTION = 130  # 128 + SIGINT, as shells report it
