#!/usr/bin/env python3
"""Writes the dashboards, `dashboards/*.json`; with `--check` it only says whether they are up to date.

The JSON files are what Grafana reads; `fleet.py` and `job.py` are what people change.
"""

import json
import sys
from pathlib import Path

import fleet
import job

DASHBOARDS = Path(__file__).parent / "dashboards"


def main() -> int:
    models = {DASHBOARDS / "fleet.json": fleet.model(), DASHBOARDS / "job.json": job.model()}
    texts = {path: json.dumps(model, indent=2) + "\n" for path, model in models.items()}
    if "--check" not in sys.argv:
        for path, text in texts.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path} is not up to date: run deploy/grafana/build.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
