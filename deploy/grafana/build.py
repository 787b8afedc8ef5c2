#!/usr/bin/env python3
"""Writes the dashboards (`dashboards/*.json`); with `--check` it only says whether they are up to date.

The JSON files are what Grafana reads; this file is what people change.
"""

import json
import sys
from pathlib import Path

from panels import (
    BLUE, GREEN, ORANGE, RED, YELLOW, Row, chart, dashboard, datasource_variable, dial, label_variable, link, number, quantiles, table, target,
)  # fmt: skip

HERE = Path(__file__).parent
CLASS = 'class=~"$class"'
RATE = "[$__rate_interval]"


def per_minute(metric: str, by: str, where: str = CLASS) -> str:
    """Events a minute."""
    return f"60 * sum by ({by}) (rate({metric}{{{where}}}{RATE}))"


def fleet() -> dict:
    """What an operator looks at: what waits, what is done, who is ill."""
    outstanding = f"kernelopt_tasks_outstanding{{{CLASS}}}"
    now = Row("Now", [
        number("Coordinator", "none", 'max(kernelopt_ready and on (instance) kernelopt_build_info{process="coordinator"}) or vector(-1)', width=3,
               words={"1": ("ready", GREEN), "0": ("not ready", ORANGE), "-1": ("absent", RED)}, help="What /readyz of the coordinator says."),
        number("Alerts firing", "none", 'count(ALERTS{alertname=~"KernelOpt.+", alertstate="firing"}) or vector(0)', (None, GREEN), (1, RED),
               help="docs/runbook.md has a section on each."),
        number("Agents at work", "none", f'sum(kernelopt_agents{{{CLASS}, mode="working"}})', (None, RED), (1, GREEN)),
        number("In quarantine", "none", f'sum(kernelopt_agents{{{CLASS}, mode="quarantined"}})', (None, GREEN), (1, RED),
               help="Agents that failed their own test or were told to stop."),
        number("Tasks outstanding", "short", f"sum({outstanding})", help="Waiting, leased or running: what the fleet must be scaled to."),
        number("Oldest waits", "s", f"max(kernelopt_queue_oldest_age_seconds{{{CLASS}}})", (None, GREEN), (900, YELLOW), (3600, RED)),
        number("Done a minute", "short", f"60 * sum(rate(kernelopt_tasks_done_total{{{CLASS}}}[5m]))"),
        number("Improvements, 24 h", "none", f"round(sum(increase(kernelopt_frontier_improvements_total{{{CLASS}}}[24h])))",
               help="Confirmed candidates that became the best known of their kernel and device class."),
    ])  # fmt: skip
    lanes = Row("Lanes", [
        chart("Tasks by device class", "short", target(f"sum by (class) ({outstanding})", "{{class}}"), stack=True),
        chart("Tasks by state", "short", target(f"sum by (state) ({outstanding})", "{{state}}"), stack=True,
              help="waiting: in the coordinator's backlog; leased: given out, not started; running."),
        chart("Age of the oldest waiting task", "s", target(f"kernelopt_queue_oldest_age_seconds{{{CLASS}}}", "{{class}}")),
        chart("Agents by mode", "short", target(f"sum by (mode) (kernelopt_agents{{{CLASS}}})", "{{mode}}"), stack=True),
        chart("Wait in the queue", "s", *quantiles("kernelopt_task_queue_wait_seconds", where=f"{{{CLASS}}}"),
              help="From when a task could have been given out to its start. It is no part of any other clock."),
        chart("Jobs by phase", "short", target("sum by (phase) (kernelopt_jobs)", "{{phase}}"), stack=True),
    ])  # fmt: skip
    work = Row("Work", [
        chart("Tasks done a minute", "short", target(per_minute("kernelopt_tasks_done_total", "reply"), "{{reply}}"), stack=True),
        chart("Verdicts a minute", "short", target(per_minute("kernelopt_verdicts_total", "verdict"), "{{verdict}}"), stack=True),
        chart("Share of candidates that are wrong", "percentunit",
              target(f'sum by (class) (rate(kernelopt_verdicts_total{{{CLASS}, verdict="wrong"}}{RATE})) / sum by (class) (rate(kernelopt_verdicts_total{{{CLASS}}}{RATE}))', "{{class}}"), most=1),
        chart("Build", "s", *quantiles("kernelopt_build_seconds"), width=6, help="One candidate, in the compiler."),
        chart("Verify", "s", *quantiles("kernelopt_verify_seconds"), width=6, help="Computing the truth for one candidate and comparing."),
        chart("Measure", "s", *quantiles("kernelopt_measure_seconds"), width=6, help="One candidate, set-up included."),
        chart("Run, by kind of work", "s", target(f"histogram_quantile(0.95, sum by (le, work) (rate(kernelopt_task_run_seconds_bucket{RATE})))", "{{work}} p95"), width=6),
    ])  # fmt: skip
    faults = Row("Leases and faults", [
        chart("Leases a minute", "short",
              target(f"60 * sum(rate(kernelopt_leases_granted_total{{{CLASS}}}{RATE}))", "granted"),
              target(f"60 * sum(rate(kernelopt_leases_regranted_total{{{CLASS}}}{RATE}))", "granted again"),
              target(per_minute("kernelopt_leases_expired_total", "cause"), "expired: {{cause}}")),
        chart("Attempts that count, a minute", "short", target(per_minute("kernelopt_attempts_total", "cause", ""), "{{cause}}"),
              target(f"60 * sum(rate(kernelopt_attempts_forgiven_total{RATE}))", "forgiven"), stack=False,
              help="Three on two agents put a task in quarantine. Those of an agent that then fails its own test are taken back."),
        chart("Tasks put in quarantine, an hour", "short", target("sum by (work) (increase(kernelopt_tasks_poisoned_total[1h]))", "{{work}}"),
              target("sum(increase(kernelopt_targets_abandoned_total[1h]))", "targets given up")),
        chart("Reports under an old lease, a minute", "short", target(f"60 * sum(rate(kernelopt_reports_stale_total{RATE}))", "stale"), width=8),
        chart("Canaries, an hour", "short", target("sum by (result) (increase(kernelopt_agent_canaries_total[1h]))", "{{result}}"), width=8,
              help="An agent tests itself after three failures in a row."),
        chart("Rounds of measurement disturbed, a minute", "short", target(per_minute("kernelopt_rounds_disturbed_total", "class"), "{{class}}"), width=8),
    ])  # fmt: skip
    by_device = "{{instance}} {{device}}"
    devices = Row("Devices", [
        chart("Busy share", "percentunit", target("kernelopt_device_busy_ratio", by_device), most=1, help="Verifying or measuring, of the time between two beats."),
        chart("Clock of the multiprocessors", "hertz", target("kernelopt_device_sm_clock_hertz", by_device)),
        chart("Temperature", "celsius", target("kernelopt_device_temperature_celsius", by_device)),
        chart("Power", "watt", target("kernelopt_device_power_watts", by_device)),
        chart("Share of evaluations throttled", "percentunit",
              target("sum by (instance, device) (increase(kernelopt_device_measurements_throttled_total[30m])) / sum by (instance, device) (increase(kernelopt_device_measurements_total[30m]))", by_device), most=1),
        chart("Reasons for a lower clock, a minute", "short", target(per_minute("kernelopt_device_throttle_reasons_total", "reason", ""), "{{reason}}")),
        chart("XIDs, an hour", "short", target("sum by (fault) (increase(kernelopt_device_xids_total[1h]))", "{{fault}}"),
              help="application: a candidate's own doing; hardware: the GPU must be looked at."),
        table("XIDs of hardware, 24 h", {"instance": "agent", "device": "device", "xid": "XID", "Value": "times"},
              target('sum by (instance, device, xid) (increase(kernelopt_device_xids_total{fault="hardware"}[24h])) > 0', instant=True, table=True)),
        table("Agents in quarantine", {"host": "host", "Value": "agents"}, target("kernelopt_agents_quarantined", instant=True, table=True)),
    ])  # fmt: skip
    memory = Row("Frontier and journal", [
        chart("Improvements, an hour", "short", target(f"sum by (class) (increase(kernelopt_frontier_improvements_total{{{CLASS}}}[1h]))", "{{class}}")),
        chart("Offers a minute", "short", target(per_minute("kernelopt_frontier_offers_total", "result", ""), "{{result}}")),
        chart("Redis", "short", target("kernelopt_redis_up", "up"), target("kernelopt_frontier_offers_pending", "offers pending"),
              target("increase(kernelopt_frontier_rebuilds_total[1h])", "rebuilds, an hour")),
        chart("Journal append", "s", *quantiles("kernelopt_journal_append_seconds"), width=8, help="One batch, to when it is on the disk."),
        chart("Events not yet on the disk", "short", target("kernelopt_journal_unwritten_events", "{{instance}}")),
        chart("Events a second", "short", target(f"sum(rate(kernelopt_journal_events_total{RATE}))", "events"),
              target(f"sum(rate(kernelopt_journal_failures_total{RATE}))", "failed")),
    ])  # fmt: skip
    broker = Row("Broker and API", [
        chart("Processes by state of their broker", "short", target("sum by (state) (kernelopt_broker_state)", "{{state}}"), stack=True),
        chart("Publish", "s", *quantiles("kernelopt_broker_publish_seconds"), help="From a publication to its confirmation."),
        chart("Frames not taken, a minute", "short", target(per_minute("kernelopt_broker_publish_failures_total", "cause", ""), "{{cause}}")),
        chart("Frames in queues", "short", target("kernelopt_broker_queue_messages", "{{queue}}"), help="Delivered to nobody yet."),
        chart("Consumers of queues", "short", target("kernelopt_broker_queue_consumers", "{{queue}}")),
        chart("Malformed and dead, an hour", "short", target("sum by (reason) (increase(kernelopt_messages_malformed_total[1h]))", "malformed: {{reason}}"),
              target("sum by (kind) (increase(kernelopt_dead_letters_total[1h]))", "dead: {{kind}}")),
        chart("Reconnections, an hour", "short", target("sum by (instance) (increase(kernelopt_broker_reconnects_total[1h]))", "{{instance}}")),
        chart("Requests a minute", "short", target(per_minute("kernelopt_http_requests_total", "status", ""), "{{status}}"), stack=True),
        chart("Requests, 95th percentile", "s",
              target(f"histogram_quantile(0.95, sum by (le, route) (rate(kernelopt_http_request_seconds_bucket{RATE})))", "{{route}}")),
    ])  # fmt: skip
    variables = [datasource_variable(), label_variable("class", "Device class", "kernelopt_tasks_outstanding", "class", several=True)]
    rows = [now, lanes, work, faults, devices, memory, broker]
    return dashboard("kernelopt-fleet", "KernelOPT: the fleet", "What waits, what is done, who is ill.", variables, [link("One job", "kernelopt-job", variables=False)], rows, "now-3h")


def job() -> dict:
    """One running job, and the fleet that it runs on."""
    here = '{job_id="$job_id"}'
    now = Row("The job", [
        number("Best speed-up of a kernel", "none", f"kernelopt_job_best_speedup_ratio{here}", (None, BLUE), (1.005, GREEN), width=5,
               help="Confirmed, over the compiler's kernel; 1 before the first."),
        number("Targets won", "none", f"kernelopt_job_targets_won{here}", width=5, help="Targets with a confirmed winner."),
        number("Candidates judged", "short", f"kernelopt_job_candidates_judged{here}", width=5),
        number("Tasks outstanding", "short", f"kernelopt_job_tasks_outstanding{here}", width=5),
        dial("Budget spent", f"kernelopt_job_budget_spent_ratio{here}", (None, GREEN), (0.8, YELLOW), (0.95, ORANGE), width=4),
    ])  # fmt: skip
    course = Row("Its course", [
        chart("Best speed-up of a kernel", "none", target(f"kernelopt_job_best_speedup_ratio{here}", "speed-up"), width=12),
        chart("Targets won", "short", target(f"kernelopt_job_targets_won{here}", "targets"), width=12),
        chart("Candidates judged a minute", "short", target(f"60 * deriv(kernelopt_job_candidates_judged{here}[5m])", "candidates")),
        chart("Tasks outstanding", "short", target(f"kernelopt_job_tasks_outstanding{here}", "tasks"),
              target("sum(kernelopt_job_tasks_outstanding)", "of all shown jobs")),
        chart("Budget spent", "percentunit", target(f"kernelopt_job_budget_spent_ratio{here}", "spent"), most=1),
    ])  # fmt: skip
    meanwhile = Row("The fleet meanwhile", [
        chart("Tasks by state", "short", target("sum by (state) (kernelopt_tasks_outstanding)", "{{state}}"), stack=True),
        chart("Verdicts a minute", "short", target(per_minute("kernelopt_verdicts_total", "verdict", ""), "{{verdict}}"), stack=True),
        chart("Busy share of devices", "percentunit", target("avg(kernelopt_device_busy_ratio)", "mean"), target("min(kernelopt_device_busy_ratio)", "least"), most=1),
        chart("Wait in the queue", "s", *quantiles("kernelopt_task_queue_wait_seconds")),
        chart("Leases expired a minute", "short", target(per_minute("kernelopt_leases_expired_total", "cause", ""), "expired: {{cause}}")),
        chart("Best speed-up of all shown jobs", "none", target("kernelopt_job_best_speedup_ratio", "{{job_id}}")),
    ])  # fmt: skip
    variables = [datasource_variable(), label_variable("job_id", "Job", "kernelopt_job_best_speedup_ratio", "job_id", several=False)]
    about = "A job while it runs. Fifty jobs are shown at most, and ended ones go: `kernelopt job ID` and its report say the rest."
    return dashboard("kernelopt-job", "KernelOPT: one job", about, variables, [link("The fleet", "kernelopt-fleet", variables=False)], [now, course, meanwhile], "now-1h")


def main() -> int:
    stale = []
    for name, model in (("fleet", fleet()), ("job", job())):
        path, text = HERE / "dashboards" / f"{name}.json", json.dumps(model, indent=2) + "\n"
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}; run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
