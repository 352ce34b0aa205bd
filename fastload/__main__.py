"""``python -m fastload COMMAND ...``: the ``fastload`` command of this Python, where no script of that
name is on the path."""

from fastload.cli.start import main

if __name__ == "__main__":
    main()
