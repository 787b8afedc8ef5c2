#!/usr/bin/env python3
"""Runs every PromQL expression of the dashboards and alerts against a Prometheus of its own that scrapes the given processes.

    tests/deploy/expressions.py --coordinator 127.0.0.1:7117 --agent 127.0.0.1:7118 [--agent ...]

An expression of a dashboard must give data. Of an alert, which must give none while all is well, each metric must be there. Every metric
that the processes serve must be used by some dashboard or alert, and every `kernelopt_` name in an expression must be served.
Exit code 1 and a line for each that fails.
"""

import argparse
import json
import math
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
DASHBOARDS = ROOT / "deploy/grafana/dashboards"

# A metric with its matchers, as it stands in an expression.
SELECTOR = re.compile(r"(kernelopt_\w+|ALERTS)\s*(\{[^}]*\})?")
# Metrics of GPUs only.
GPU = re.compile(r"kernelopt_device_(sm_clock|temperature|power|measurements|throttle|xids)")
# Nothing is said of what is not there, and in a healthy fleet these are not.
RARE = re.compile(r"kernelopt_agents_quarantined|kernelopt_device_xids_total\{fault=\"hardware\"\}")
# At work these come when a winner is confirmed, or the frontier was lost.
OCCASIONAL = re.compile(r"kernelopt_frontier_(offer|rebuild)_seconds")
# Part of a histogram's name that is no part of the metric's.
PARTS = re.compile(r"_(bucket|sum|count)$")


def main() -> int:
    options = parse(sys.argv[1:])
    with running_prometheus(options) as ask:
        wait_for_data(ask, options.seconds)
        faults = lasting(lambda: [*check_dashboards(ask, options), *check_alerts(ask), *check_names(ask)], options.patience)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


@cache
def told(line: str) -> None:
    """Prints a line, once however often it is checked."""
    print(line, flush=True)


def lasting(check, seconds: float) -> list[str]:
    """Faults that every check of some has, within a time: what real processes do, they do one after the other."""
    deadline = time.monotonic() + seconds
    faults = check()
    while faults and time.monotonic() < deadline:
        time.sleep(2)
        again = set(check())
        faults = [fault for fault in faults if fault in again]
    return faults


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinator", action="append", default=[], metavar="HOST:PORT")
    parser.add_argument("--agent", action="append", default=[], metavar="HOST:PORT")
    parser.add_argument("--no-gpu", action="store_true", help="agents have no GPU: expressions of GPUs may give nothing")
    parser.add_argument("--no-job", action="store_true", help="no job runs: expressions of single jobs may give nothing")
    parser.add_argument("--seconds", type=float, default=60, help="longest wait for data")
    parser.add_argument("--patience", type=float, default=0, help="seconds in which each expression must give data once (default: at once)")
    options = parser.parse_args(arguments)
    if not options.coordinator or not options.agent:
        parser.error("give at least one --coordinator and one --agent")
    return options


@contextmanager
def running_prometheus(options: argparse.Namespace):
    """A Prometheus with the project's rules; yields a function that asks its API."""
    program = shutil.which("prometheus")
    if not program:
        sys.exit("error: prometheus was not found\n       apt-get install prometheus")
    with tempfile.TemporaryDirectory(prefix="kernelopt-prometheus-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(PROMETHEUS / "alerts.yml")],
            "scrape_configs": [
                {"job_name": f"kernelopt-{process}", "static_configs": [{"targets": targets}]}
                for process, targets in (("coordinator", options.coordinator), ("agent", options.agent))
            ],
        }
        # JSON is YAML.
        path = Path(folder) / "prometheus.yml"
        path.write_text(json.dumps(config))
        command = [program, f"--config.file={path}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"]
        with (Path(folder) / "log").open("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                yield asker(address, process, log)
            finally:
                process.terminate()


def asker(address: str, process: subprocess.Popen, log):
    """Asks Prometheus' API; waits for it to start."""

    def ask(path: str, **parameters: str):
        url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        for attempt in range(100):
            if process.poll() is not None:
                log.seek(0)
                sys.exit(f"error: prometheus ended: {log.read()}")
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return json.load(answer)["data"]
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise ValueError(json.load(error)["error"]) from error
                time.sleep(0.1)
            except urllib.error.URLError:
                if attempt == 99:
                    raise
                time.sleep(0.1)
        raise TimeoutError(url)

    return ask


def wait_for_data(ask, seconds: float) -> None:
    """Until every target was scraped several times, so that rates have what they need."""
    deadline = time.monotonic() + seconds
    while True:
        targets = ask("targets")["activeTargets"]
        down = [f"{target['scrapeUrl']}: {target['lastError']}" for target in targets if target["health"] != "up"]
        scraped = ask("query", query="min(count_over_time(up[1m]))")["result"]
        if targets and not down and scraped and float(scraped[0]["value"][1]) >= 6:
            return
        if time.monotonic() > deadline:
            sys.exit(f"error: not scraped within {seconds:.0f} s: {'; '.join(down) or 'too few scrapes'}")
        time.sleep(0.5)


def expressions(dashboard: Path):
    """Title of the panel and expression, of all panels."""
    model = json.loads(dashboard.read_text())
    for panel in model["panels"]:
        for query in panel.get("targets", []):
            yield panel["title"], query["expr"]


def values_of_variables(ask) -> dict[str, str]:
    """What Grafana would put in place of variables."""
    jobs = ask("query", query="kernelopt_job_best_speedup_ratio")["result"]
    job = jobs[0]["metric"]["job_id"] if jobs else "none"
    return {"$__rate_interval": "10s", "$class": ".+", "$job_id": job}


def check_dashboards(ask, options: argparse.Namespace):
    """Every expression gives data, none of it only NaN."""
    variables = values_of_variables(ask)
    for path in sorted(DASHBOARDS.glob("*.json")):
        count = 0
        for title, expression in expressions(path):
            query = expression
            for name, value in variables.items():
                query = query.replace(name, value)
            where = f"{path.name}: {title}: {expression}"
            try:
                result = ask("query", query=query)["result"]
            except ValueError as error:
                yield f"{where}: {error}"
                continue
            count += 1
            allowed = (
                RARE.search(expression)
                or (options.patience and OCCASIONAL.search(expression))
                or (options.no_gpu and GPU.search(expression))
                or (options.no_job and "kernelopt_job_" in expression)
            )
            if not result and not allowed:
                yield f"{where}: no data"
            elif result and not allowed and all(math.isnan(float(series["value"][1])) for series in result):
                yield f"{where}: only NaN"
        told(f"{path.name}: {count} expressions")


def check_alerts(ask):
    """Rules are loaded and evaluated without an error, and each metric that they look at is there."""
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule["health"] != "ok":
            yield f"alerts.yml: {rule['name']}: {rule['health']}: {rule.get('lastError', '')}"
        for name, matchers in SELECTOR.findall(rule["query"]):
            selector = name + matchers
            if not RARE.search(selector) and not GPU.search(selector) and not ask("query", query=selector)["result"]:
                yield f"alerts.yml: {rule['name']}: no {selector}"
    if not rules:
        yield "alerts.yml: no rules"
    told(f"alerts.yml: {len(rules)} rules")


def check_names(ask):
    """What is served is looked at, and what is looked at is served."""
    served = {
        PARTS.sub("", name) if base_of_histogram(ask, name) else name
        for name in ask("label/__name__/values")
        if name.startswith("kernelopt_")
    }
    texts = [path.read_text() for path in (*DASHBOARDS.glob("*.json"), PROMETHEUS / "alerts.yml")]
    used = {PARTS.sub("", name) for text in texts for name in re.findall(r"kernelopt_\w+", text)}
    for name in sorted(served - used - NOT_SHOWN):
        yield f"{name} is served, and no dashboard or alert looks at it"
    told(f"{len(served)} metrics served, {len(used & served)} of them looked at")


# Metrics for queries by hand, not for a panel.
NOT_SHOWN = {
    "kernelopt_start_time_seconds",
}


def base_of_histogram(ask, name: str) -> bool:
    """Whether a name is that of a part of a histogram."""
    return bool(PARTS.search(name)) and bool(ask("query", query=f"{PARTS.sub('', name)}_bucket")["result"])


if __name__ == "__main__":
    sys.exit(main())
