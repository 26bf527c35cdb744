"""`python -m toolspeak.cli`."""

from toolspeak.cli.main import main

if __name__ == "__main__":
    main()
