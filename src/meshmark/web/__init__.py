"""The server of the live page, of recordings and of loads."""
