"""Building blocks of the dashboards: one look for all panels.

Grafana's JSON model is long and repeats itself; here a panel is a line that says what it shows. Colours mean the same thing everywhere.
"""

import re
from dataclasses import dataclass, field

from queries import quantile

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
# Of what a query gives, the last value.
_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}

GREEN, BLUE, YELLOW, ORANGE, RED, PURPLE, GREY = "green", "blue", "yellow", "orange", "red", "purple", "#8e8e8e"

# Colours of series by the label that their legends come from; those without one are legends of our own.
COLOURS = {
    "verdict": {
        "accepted": GREEN,
        "no_change": BLUE,
        "slower": GREY,
        "wrong": RED,
        "build_failed": ORANGE,
        "crashed": PURPLE,
        "hung": "dark-purple",
        "rejected": "dark-red",
        "unstable": YELLOW,
    },
    "mode": {"working": GREEN, "draining": YELLOW, "quarantined": RED},
    "state": {"waiting": BLUE, "leased": YELLOW, "running": GREEN, "up": GREEN, "blocked": YELLOW, "down": RED},
    "reply": {"judged": GREEN, "profiled": BLUE, "model_checked": PURPLE, "nothing": GREY, "handed_back": YELLOW, "failed": RED},
    "result": {"improved": GREEN, "kept": BLUE, "stale": YELLOW, "failed": RED, "passed": GREEN},
    "status": {"2xx": GREEN, "3xx": BLUE, "4xx": YELLOW, "5xx": RED},
    "cause": {"expired: silent": ORANGE, "expired: overrun": RED},
    "fault": {"application": BLUE, "hardware": RED, "other": YELLOW},
    "": {"granted": GREEN, "granted again": YELLOW, "median": BLUE, "p95": ORANGE, "up": GREEN, "failed": RED},
}


@dataclass
class Panel:
    """One panel; `width` of 24 columns, `height` in rows of 30 pixels."""

    model: dict
    width: int
    height: int = 8


@dataclass
class Row:
    """Panels under one title."""

    title: str
    panels: list[Panel] = field(default_factory=list)


def target(expr: str, legend: str = "", *, instant: bool = False, table: bool = False) -> dict:
    """One query. `legend` may name labels, `{{class}}`."""
    query = {"datasource": DATASOURCE, "expr": expr, "legendFormat": legend or "__auto", "range": not instant, "instant": instant}
    return query | ({"format": "table"} if table else {})


def steps(*bounds: tuple[float | None, str]) -> dict:
    """Colours by value, each from its bound on."""
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in bounds]}


def chart(title: str, unit: str, *targets: dict, width: int = 8, stack: bool = False, help: str = "", most: float | None = None) -> Panel:
    """Values over time."""
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 60 if stack else 10,
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "axisPlacement": "auto",
        "axisColorMode": "text",
        "thresholdsStyle": {"mode": "off"},
    }
    defaults = {"unit": unit, "min": 0, "custom": custom, "color": {"mode": "palette-classic"}} | ({"max": most} if most else {})
    return _panel(
        "timeseries",
        title,
        help,
        targets,
        width,
        defaults,
        _colours(targets),
        {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def number(
    title: str, unit: str, expr: str, *bounds: tuple[float | None, str], width: int = 3, help: str = "", words: dict | None = None
) -> Panel:
    """One value now. `words` replaces values by words with colours: `{"1": ("ready", "green")}`."""
    texts = {value: {"text": text, "color": colour} for value, (text, colour) in (words or {}).items()}
    mappings = [{"type": "value", "options": texts}] if texts else []
    defaults = {"unit": unit, "mappings": mappings, "color": {"mode": "thresholds"}, "thresholds": steps(*(bounds or ((None, BLUE),)))}
    options = {
        "reduceOptions": _LAST,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "center",
        "orientation": "auto",
        "textMode": "value",
        "wideLayout": True,
    }
    panel = _panel("stat", title, help, (target(expr, instant=True),), width, defaults, [], options)
    panel.height = 4
    return panel


def dial(title: str, expr: str, *bounds: tuple[float | None, str], width: int = 3, help: str = "") -> Panel:
    """A share of one, now."""
    defaults = {"unit": "percentunit", "min": 0, "max": 1, "color": {"mode": "thresholds"}, "thresholds": steps(*bounds)}
    options = {"reduceOptions": _LAST, "showThresholdLabels": False, "showThresholdMarkers": False}
    panel = _panel("gauge", title, help, (target(expr, instant=True),), width, defaults, [], options)
    panel.height = 4
    return panel


def table(title: str, columns: dict[str, str], *targets: dict, width: int = 8, help: str = "") -> Panel:
    """Rows now. `columns` renames labels and values; what it does not name is hidden."""
    options = {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}}
    panel = _panel("table", title, help, targets, width, {"custom": {"align": "auto"}}, [], options)
    names = list(columns)
    panel.model["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
        {"id": "organize", "options": {"renameByName": columns, "indexByName": {name: place for place, name in enumerate(names)}}},
    ]
    return panel


def _panel(kind: str, title: str, help: str, targets: tuple, width: int, defaults: dict, overrides: list, options: dict) -> Panel:
    queries = [query | {"refId": chr(ord("A") + place)} for place, query in enumerate(targets)]
    model = {
        "type": kind,
        "title": title,
        "description": help,
        "datasource": DATASOURCE,
        "targets": queries,
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": options,
    }
    return Panel(model, width)


def _colours(targets: tuple) -> list[dict]:
    """The fixed colours of series that a panel can have."""
    legends = [query["legendFormat"] for query in targets]
    labels = {label for legend in legends for label in re.findall(r"{{(\w+)}}", legend)}
    colours = {name: colour for name, colour in COLOURS[""].items() if name in legends}
    for label in sorted(labels & COLOURS.keys()):
        colours |= COLOURS[label]
    return [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
        for name, colour in colours.items()
    ]


def quantiles(histogram: str, where: str = "") -> list[dict]:
    """Median and 95th percentile of a histogram."""
    return [target(quantile(q, histogram, where=where), name) for q, name in ((0.5, "median"), (0.95, "p95"))]


def dashboard(*, uid: str, title: str, description: str, variables: list[dict], links: list[dict], rows: list[Row], since: str) -> dict:
    """The whole model: rows from top to bottom, panels from left to right."""
    panels, y = [], 0
    for row in rows:
        panels.append(
            {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
                height = 0
            panels.append(panel.model | {"gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["kernelopt"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": since, "to": "now"},
        "timezone": "browser",
        "liveNow": False,
        "templating": {"list": variables},
        "links": links,
        "annotations": {"list": [_FIRING]},
        "panels": panels,
    }


# Alerts that fire, as regions on all charts.
_FIRING = {
    "name": "Alerts",
    "datasource": DATASOURCE,
    "enable": True,
    "iconColor": "red",
    "expr": 'ALERTS{alertname=~"KernelOpt.+", alertstate="firing"}',
    "titleFormat": "{{alertname}}",
    "textFormat": "{{class}} {{instance}} {{host}}",
}


def datasource_variable() -> dict:
    """Which Prometheus."""
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "regex": "",
        "refresh": 1,
    }


def label_variable(label: str, title: str, metric: str, *, several: bool) -> dict:
    """One or several values of a label of a metric."""
    query = f"label_values({metric}, {label})"
    some = {"includeAll": True, "multi": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": label,
        "label": title,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "hide": 0,
        "regex": "",
    } | (some if several else {"includeAll": False, "multi": False, "current": {}})


def link(title: str, uid: str) -> dict:
    """To another dashboard, at the same time."""
    return {
        "title": title,
        "type": "link",
        "url": f"/d/{uid}",
        "icon": "dashboard",
        "keepTime": True,
        "includeVars": False,
        "targetBlank": False,
    }
