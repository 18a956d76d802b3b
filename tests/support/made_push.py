"""What nodes send to `meshmark fleet serve`."""

from __future__ import annotations

import json
import time


def text_of(name: str, **values: float) -> bytes:
    """Metrics of a node, as JSON of OTLP: shares, whose names have `_` for the first dot."""
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
