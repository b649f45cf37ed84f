"""``python -m triptych``: the command line, for launchers that start a module."""

from triptych.cli.main import main

if __name__ == "__main__":
    main()
