"""`python -m meshmark`."""

from meshmark.entry import main

main()
