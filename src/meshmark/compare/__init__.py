"""Pairs results of two machines or runs by what they measured, and judges each pair."""
