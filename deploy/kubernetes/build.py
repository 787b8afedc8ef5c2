#!/usr/bin/env python3
"""Writes `alerts.yaml`, the rules of `../prometheus/alerts.yml` for the Prometheus operator.

With `--check` it only says whether the file is up to date.

The text is moved, not parsed: comments and order stay.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
HEAD = """\
# Written by build.py from ../prometheus/alerts.yml: change that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kernelopt
  labels: { app.kubernetes.io/name: kernelopt }
spec:
"""


def main() -> int:
    rules = (HERE / "../prometheus/alerts.yml").read_text()
    groups = rules[rules.index("groups:") :].splitlines(keepends=True)
    text = HEAD + "".join("  " + line if line.strip() else line for line in groups)
    path = HERE / "alerts.yaml"
    if "--check" not in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print(f"{path} is not up to date: run deploy/kubernetes/build.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
