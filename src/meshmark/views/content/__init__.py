"""Selects and words what views show: tables, sentences and key figures."""
