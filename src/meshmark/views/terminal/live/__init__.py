"""The live map in the terminal."""
