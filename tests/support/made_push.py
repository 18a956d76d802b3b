"""Bodies that nodes send to `meshmark fleet serve`."""

from __future__ import annotations

import json
import time


def text_of(name: str, **values: float) -> bytes:
    """Return metrics of a node as JSON of OTLP: shares, with `_` for the first dot of their names."""
    metrics = [
        {
            "name": f"meshmark.{metric.replace('_', '.', 1)}",
            "unit": "1",
            "gauge": {"dataPoints": [{"asDouble": value, "timeUnixNano": str(time.time_ns())}]},
        }
        for metric, value in values.items()
    ]
    host = {"attributes": [{"key": "host.name", "value": {"stringValue": name}}]}
    return json.dumps({"resourceMetrics": [{"resource": host, "scopeMetrics": [{"metrics": metrics}]}]}).encode()
