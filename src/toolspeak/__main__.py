"""The command as `python -m toolspeak`, where its script is not on PATH."""

from toolspeak.cli.main import main

if __name__ == "__main__":
    main()
