"""One script for each library, run in that library's environment: `python -m sides.with_NAME`."""
