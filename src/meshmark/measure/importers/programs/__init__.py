"""Readers of the output of programs that measure other programs or I/O, one file per tool."""
