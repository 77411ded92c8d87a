"""One script for each library, run in that library's environment: `python -m _sides.with_NAME`."""
