"""``python -m privypurse``: the command line."""

from privypurse.cli import main

if __name__ == "__main__":
    main()
