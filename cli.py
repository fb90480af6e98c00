"""recreate from a clone, without installing it: `python cli.py build --domain swe`."""

from recreate.cli import main

if __name__ == "__main__":
    main()
