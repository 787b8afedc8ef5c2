#!/usr/bin/env python3
"""Checks what deploy/ says against itself and against docs/: names of metrics and labels, alerts and their runbook, files, ports, users.

Needs PyYAML (Debian: python3-yaml). Exit code 1 and a line for each fault.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PORTS = {"coordinator": 7117, "agent": 7118, "gateway": 7119}
# Labels that Prometheus and its discovery give.
TARGET_LABELS = {"instance", "job", "namespace", "pod", "le", "alertname", "alertstate"}
PARTS = re.compile(r"_(bucket|sum|count)$")


def main() -> int:
    faults = [fault for check in CHECKS for fault in check()]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def read(path: Path) -> list[dict]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def alert_rules() -> list[dict]:
    return [rule for group in read(DEPLOY / "prometheus/alerts.yml")[0]["groups"] for rule in group["rules"]]


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# Alerts


def alerts_are_complete() -> Iterator[str]:
    """Summary, description, severity and a section of the runbook for each; no section without an alert."""
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    sections, linked = {anchor(heading) for heading in headings}, set()
    for rule in alert_rules():
        name, notes = rule["alert"], rule["annotations"]
        if rule["labels"].get("severity") not in ("critical", "warning"):
            yield f"{name}: severity is critical or warning"
        if not notes.get("summary") or not notes.get("description"):
            yield f"{name}: summary and description"
        page, _, section = notes["runbook_url"].partition("#")
        linked.add(section)
        if page != "docs/runbook.md" or section not in sections:
            yield f"{name}: {notes['runbook_url']} is not in docs/runbook.md"
    for section in sorted(sections - linked):
        yield f"docs/runbook.md: no alert leads to {section}"


def alerts_are_tested() -> Iterator[str]:
    """Each alert fires in one test and does not in another."""
    tests = [test for case in read(DEPLOY / "prometheus/alerts_test.yml")[0]["tests"] for test in case["alert_rule_test"]]
    for rule in alert_rules():
        expected = [bool(test.get("exp_alerts")) for test in tests if test["alertname"] == rule["alert"]]
        if True not in expected or False not in expected:
            yield f"{rule['alert']}: alerts_test.yml must show it firing and not firing"


# Expressions


def expressions() -> Iterator[tuple[str, str]]:
    """Every PromQL expression, with where it stands."""
    for rule in alert_rules():
        yield rule["alert"], rule["expr"]
    for path in sorted((DEPLOY / "grafana/dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for query in panel.get("targets", []):
                yield f"{path.name}: {panel['title']}", query["expr"]
    for document in read(DEPLOY / "kubernetes/keda/by-outstanding.yaml"):
        for trigger in document["spec"]["triggers"]:
            yield "keda", trigger["metadata"]["query"]


def metrics_and_labels_exist() -> Iterator[str]:
    """Every metric of an expression is documented, and has the labels that are asked of it."""
    table = re.findall(r"^\| `(kernelopt_\w+)` \| \w+ \| [\w, ]+ \| (.*?) \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    labels = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in table}
    for where, expression in expressions():
        known = set(TARGET_LABELS)
        for name, matchers in re.findall(r"(kernelopt_\w+)(?:\{([^}]*)\})?", expression):
            metric = name if name in labels else PARTS.sub("", name)
            if metric not in labels:
                yield f"{where}: {name} is no metric"
                continue
            known |= labels[metric]
            for label in re.findall(r"(\w+)\s*[=!]~?=?", matchers):
                if label not in labels[metric] | TARGET_LABELS:
                    yield f"{where}: {metric} has no label {label}"
        grouped = {label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in re.findall(r"\w+", group)}
        for label in sorted(grouped - known):
            yield f"{where}: nothing in it has the label {label}"


# Dashboards


def dashboards_are_well_made() -> Iterator[str]:
    """Identities are unique, panels do not overlap and stay in the grid, queries have letters and legends, links lead somewhere."""
    models = {path.name: json.loads(path.read_text()) for path in sorted((DEPLOY / "grafana/dashboards").glob("*.json"))}
    uids = {model["uid"] for model in models.values()}
    for name, model in models.items():
        cells: dict[tuple[int, int], str] = {}
        for panel in model["panels"]:
            grid = panel["gridPos"]
            if grid["x"] + grid["w"] > 24:
                yield f"{name}: {panel['title']} is beyond the right edge"
            for cell in ((x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])):
                if cell in cells:
                    yield f"{name}: {panel['title']} lies over {cells[cell]}"
                    break
                cells[cell] = panel["title"]
            if panel["type"] != "row" and [query["refId"] for query in panel["targets"]] != sorted({q["refId"] for q in panel["targets"]}):
                yield f"{name}: {panel['title']}: queries without letters of their own"
        identities = [panel["id"] for panel in model["panels"]]
        if len(identities) != len(set(identities)):
            yield f"{name}: two panels have one id"
        variables = {variable["name"] for variable in model["templating"]["list"]}
        for variable in set(re.findall(r"\$\{?(\w+)", json.dumps(model["panels"]))) - variables - {"__rate_interval"}:
            yield f"{name}: there is no variable {variable}"
        for target in model["links"]:
            if target["url"].removeprefix("/d/") not in uids:
                yield f"{name}: a link leads to {target['url']}"


# Containers


def compose_fits_the_image() -> Iterator[str]:
    """Targets, files, volumes, secrets and dependencies that compose.yaml names are there."""
    compose = read(DEPLOY / "compose.yaml")[0]
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
    services = compose["services"]
    for name, service in services.items():
        build = service.get("build")
        if build and (build["target"] not in targets or not (DEPLOY / build["context"] / build["dockerfile"]).exists()):
            yield f"compose.yaml: {name}: no target {build['target']}"
        for needed, condition in items_of(service.get("depends_on", {})):
            if needed not in services:
                yield f"compose.yaml: {name} depends on {needed}"
            elif condition == "service_healthy" and not (services[needed].get("healthcheck") or services[needed].get("build")):
                yield f"compose.yaml: {name} waits for {needed}, which has no health check"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./") and not (DEPLOY / source).exists():
                yield f"compose.yaml: {name}: no {source}"
            elif source[0] not in "./" and source not in compose["volumes"]:
                yield f"compose.yaml: {name}: no volume {source}"
        for secret in service.get("secrets", []):
            if secret not in compose["secrets"]:
                yield f"compose.yaml: {name}: no secret {secret}"
        if build and not (service.get("read_only") and service.get("cap_drop") == ["ALL"]):
            yield f"compose.yaml: {name} is not hardened"


def items_of(dependencies: dict | list) -> list[tuple[str, str]]:
    if isinstance(dependencies, list):
        return [(name, "service_started") for name in dependencies]
    return [(name, how["condition"]) for name, how in dependencies.items()]


def everyone_means_the_same_ports() -> Iterator[str]:
    """Images, configurations, scrapes and services agree on ports."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    exposed = re.findall(r"AS (coordinator|agent)$.*?^EXPOSE (\d+)", dockerfile, re.MULTILINE | re.DOTALL)
    found = [(f"Dockerfile: {name}", name, int(port)) for name, port in exposed]
    for path in (DEPLOY / "config").glob("*.toml"):
        process = path.stem.split("-")[0]
        key = "metrics" if process == "agent" else "listen"
        found.append((path.name, process, port_of(tomllib.loads(path.read_text())[key])))
    for job in read(DEPLOY / "prometheus/prometheus.yml")[0]["scrape_configs"]:
        process = job["job_name"].removeprefix("kernelopt-")
        if process in PORTS:
            found += [("prometheus.yml", process, port_of(target)) for group in job["static_configs"] for target in group["targets"]]
    for path in (DEPLOY / "kubernetes").rglob("*.yaml"):
        for container in (container for _, pod in pods(path) for container in pod["containers"]):
            found += [(path.name, container["name"], port["containerPort"]) for port in container["ports"]]
    for where, process, port in found:
        if port != PORTS[process]:
            yield f"{where}: the port of {process} is {PORTS[process]}, not {port}"
    if len(found) < 8:
        yield f"ports: only {len(found)} places were found"


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


# Kubernetes


def pods(path: Path) -> Iterator[tuple[dict, dict]]:
    """Workloads of a file with their pods."""
    for document in read(path):
        template = document.get("spec", {}).get("template")
        if template:
            yield document, template["spec"]


def kubernetes_is_consistent() -> Iterator[str]:
    """Selectors find their pods, pods are locked down, volumes and keys exist, files that are listed are there."""
    folder = DEPLOY / "kubernetes"
    for resource in read(folder / "kustomization.yaml")[0]["resources"]:
        if not (folder / resource).exists():
            yield f"kustomization.yaml: no {resource}"
    config = read(folder / "config.yaml")[0]["data"]
    secrets = set(read(folder / "secret.example.yaml")[0]["stringData"])
    for name, text in config.items():
        if not flat(tomllib.loads(text)) <= flat(tomllib.loads((DEPLOY / "config" / name).read_text())):
            yield f"config.yaml: {name} has keys that deploy/config/{name} has not"
    for path in sorted(folder.rglob("*.yaml")):
        for workload, pod in pods(path):
            where = f"{path.name}: {workload['metadata']['name']}"
            if workload["spec"]["selector"]["matchLabels"] != workload["spec"]["template"]["metadata"]["labels"]:
                yield f"{where}: its selector does not find its pods"
            yield from (f"{where}: {fault}" for fault in faults_of_pod(pod, workload, set(config), secrets))


def faults_of_pod(pod: dict, workload: dict, configs: set[str], secrets: set[str]) -> Iterator[str]:
    if not pod["securityContext"].get("runAsNonRoot") or pod["terminationGracePeriodSeconds"] < 25:
        yield "runs as root, or has less than the 20 s that it needs to end"
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    for container in pod["containers"]:
        context = container["securityContext"]
        if not context.get("readOnlyRootFilesystem") or context["capabilities"]["drop"] != ["ALL"] or context["allowPrivilegeEscalation"]:
            yield "is not locked down"
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        if mounted != volumes:
            yield f"volumes and mounts differ: {sorted(mounted ^ volumes)}"
        if {mount["subPath"] for mount in container["volumeMounts"] if "subPath" in mount} - configs:
            yield "mounts a configuration that is not there"
        if {variable["valueFrom"]["secretKeyRef"]["key"] for variable in container["env"]} - secrets:
            yield "wants a secret that is not there"
        paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        if paths != ["/healthz", "/healthz", "/readyz"]:
            yield f"probes {paths}"


def flat(table: dict, prefix: str = "") -> set[str]:
    """Dotted keys; those that a sample shows behind a # are not among them."""
    return {
        name for key, value in table.items() for name in (flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key})
    }


def the_elastic_agent_is_the_agent() -> Iterator[str]:
    """The pods of the daemon set and of the Deployment that KEDA scales differ in where they run alone."""
    (_, one), (_, other) = (*pods(DEPLOY / "kubernetes/agent.yaml"), *pods(DEPLOY / "kubernetes/keda/agent.yaml"))
    differ = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    if differ != ["nodeSelector"]:
        yield f"kubernetes/agent.yaml and keda/agent.yaml differ in {differ}"


CHECKS = [
    alerts_are_complete,
    alerts_are_tested,
    metrics_and_labels_exist,
    dashboards_are_well_made,
    compose_fits_the_image,
    everyone_means_the_same_ports,
    kubernetes_is_consistent,
    the_elastic_agent_is_the_agent,
]

if __name__ == "__main__":
    sys.exit(main())
