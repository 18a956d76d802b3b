"""A result line of the probe."""

from __future__ import annotations

LINE = {
    "type": "result",
    "schema": 1,
    "source": "host",
    "machine": "n042",
    "instrument": "latency",
    "metric": "load_latency",
    "unit": "s",
    "better": "lower",
    "value": 3.0,
    "interval": [1.0, 6.0],
    "samples": [1.0, 2.0, 3.0, 3.0, 4.0, 6.0],
    "flags": ["disturbed"],
    "conditions": {"cpu": 0, "pages": "thp"},
    "provenance": {"command": "latency"},
}
