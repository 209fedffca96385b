"""`python -m dncfl.launch` is the console script `dncfl`."""

from dncfl.launch.cli import main

if __name__ == "__main__":
    main()
