"""Run the command line as `python -m scbroker`."""

from scbroker.cli import main

if __name__ == "__main__":
    main()
