"""The fleet's dashboard: what waits, what is done, who is ill."""

from panels import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Row,
    chart,
    dashboard,
    datasource_variable,
    label_variable,
    link,
    number,
    quantiles,
    table,
    target,
)
from queries import CLASS, now, per_hour, per_minute, per_second, quantile

BY_DEVICE = "{{instance}} {{device}}"


def _now() -> Row:
    ready = 'max(kernelopt_ready and on (instance) kernelopt_build_info{process="coordinator"}) or vector(-1)'
    states = {"1": ("ready", GREEN), "0": ("not ready", ORANGE), "-1": ("absent", RED)}
    firing = 'count(ALERTS{alertname=~"KernelOpt.+", alertstate="firing"}) or vector(0)'
    working, quarantined = (now("kernelopt_agents", where=f'{CLASS}, mode="{mode}"') for mode in ("working", "quarantined"))
    oldest = f"max(kernelopt_queue_oldest_age_seconds{{{CLASS}}})"
    done = f"60 * sum(rate(kernelopt_tasks_done_total{{{CLASS}}}[5m]))"
    improvements = f"round(sum(increase(kernelopt_frontier_improvements_total{{{CLASS}}}[24h])))"
    best = "Confirmed candidates that became the best known of their kernel and device class."
    return Row(
        "Now",
        [
            number("Coordinator", "none", ready, words=states, help="What /readyz of the coordinator says."),
            number("Alerts firing", "none", firing, (None, GREEN), (1, RED), help="docs/runbook.md has a section on each."),
            number("Agents at work", "none", working, (None, RED), (1, GREEN)),
            number("In quarantine", "none", quarantined, (None, GREEN), (1, RED), help="They failed their own test or were told to stop."),
            number("Tasks outstanding", "short", now("kernelopt_tasks_outstanding", where=CLASS), help="Waiting, leased or running."),
            number("Oldest waits", "s", oldest, (None, GREEN), (900, YELLOW), (3600, RED)),
            number("Done a minute", "short", done),
            number("Improvements, 24 h", "none", improvements, (None, BLUE), help=best),
        ],
    )


def _lanes() -> Row:
    outstanding, wait = "kernelopt_tasks_outstanding", "kernelopt_task_queue_wait_seconds"
    states = "waiting: in the coordinator's backlog; leased: given out, not started; running."
    clock = "From when a task could have been given out to its start. It is no part of any other clock."
    return Row(
        "Lanes",
        [
            chart("Tasks by device class", "short", target(now(outstanding, "class", CLASS), "{{class}}"), stack=True),
            chart("Tasks by state", "short", target(now(outstanding, "state", CLASS), "{{state}}"), stack=True, help=states),
            chart("Age of the oldest waiting task", "s", target(f"kernelopt_queue_oldest_age_seconds{{{CLASS}}}", "{{class}}")),
            chart("Agents by mode", "short", target(now("kernelopt_agents", "mode", CLASS), "{{mode}}"), stack=True),
            chart("Wait in the queue", "s", *quantiles(wait, CLASS), help=clock),
            chart("Jobs by phase", "short", target(now("kernelopt_jobs", "phase"), "{{phase}}"), stack=True),
        ],
    )


def _work() -> Row:
    verdicts = "kernelopt_verdicts_total"
    wrong = per_second(verdicts, "class", f'{CLASS}, verdict="wrong"') + " / " + per_second(verdicts, "class", CLASS)
    run = quantile(0.95, "kernelopt_task_run_seconds", "work")
    clocks = [
        target(quantile(0.95, f"kernelopt_task_{clock}_seconds"), legend)
        for clock, legend in (("lease", "lease"), ("agent_wait", "wait in the agent"), ("fetch", "fetch"))
    ]
    return Row(
        "Work",
        [
            chart(
                "Tasks done a minute", "short", target(per_minute("kernelopt_tasks_done_total", "reply", CLASS), "{{reply}}"), stack=True
            ),
            chart("Verdicts a minute", "short", target(per_minute(verdicts, "verdict", CLASS), "{{verdict}}"), stack=True),
            chart("Share of candidates that are wrong", "percentunit", target(wrong, "{{class}}"), most=1),
            chart("Build", "s", *quantiles("kernelopt_build_seconds"), help="One candidate, in the compiler."),
            chart("Verify", "s", *quantiles("kernelopt_verify_seconds"), help="One candidate: computing the truth, comparing."),
            chart("Measure", "s", *quantiles("kernelopt_measure_seconds"), help="One candidate, set-up included."),
            chart("Run, 95th percentile", "s", target(run, "{{work}}"), width=12, help="The whole of a task, by kind of work."),
            chart("Other clocks of a task, 95th percentile", "s", *clocks, width=12),
        ],
    )


def _faults() -> Row:
    leases = [
        target(per_minute("kernelopt_leases_granted_total", where=CLASS), "granted"),
        target(per_minute("kernelopt_leases_regranted_total", where=CLASS), "granted again"),
        target(per_minute("kernelopt_leases_expired_total", "cause", CLASS), "expired: {{cause}}"),
    ]
    attempts = [
        target(per_minute("kernelopt_attempts_total", "cause"), "{{cause}}"),
        target(per_minute("kernelopt_attempts_forgiven_total"), "forgiven"),
    ]
    poisoned = [
        target(per_hour("kernelopt_tasks_poisoned_total", "work"), "{{work}}"),
        target(per_hour("kernelopt_targets_abandoned_total"), "targets given up"),
    ]
    disturbed = target(per_minute("kernelopt_rounds_disturbed_total", "class", CLASS), "{{class}}")
    three = "Three, on two agents, put a task in quarantine. Those of an agent that then fails its own test are taken back."
    canary = "An agent tests itself after three failures in a row."
    return Row(
        "Leases and faults",
        [
            chart("Leases a minute", "short", *leases),
            chart("Attempts that count, a minute", "short", *attempts, help=three),
            chart("Tasks put in quarantine, an hour", "short", *poisoned),
            chart("Reports under an old lease, a minute", "short", target(per_minute("kernelopt_reports_stale_total"), "stale")),
            chart("Canaries, an hour", "short", target(per_hour("kernelopt_agent_canaries_total", "result"), "{{result}}"), help=canary),
            chart("Rounds of measurement disturbed, a minute", "short", disturbed),
        ],
    )


def _agents() -> Row:
    done = target(per_minute("kernelopt_agent_tasks_done_total", "reply"), "{{reply}}")
    clocks = [target(quantile(0.95, f"kernelopt_agent_task_{clock}_seconds"), clock) for clock in ("wait", "build", "run")]
    held = "Running, built ahead, or reported and not yet accepted."
    unaccepted = "Sent again and again until the coordinator has them on its disk."
    return Row(
        "Agents, as they say it",
        [
            chart("Agents by mode", "short", target(now("kernelopt_agent_mode", "mode"), "{{mode}}"), stack=True),
            chart("Tasks ended a minute", "short", done, stack=True),
            chart("Clocks of a task, 95th percentile", "s", *clocks),
            chart("Tasks held", "short", target("kernelopt_agent_tasks_held", BY_DEVICE), width=12, help=held),
            chart("Reports not yet accepted", "short", target("kernelopt_agent_reports_unaccepted", BY_DEVICE), width=12, help=unaccepted),
        ],
    )


def _devices() -> Row:
    measured = "sum by (instance, device) (increase(kernelopt_device_measurements_total[30m]))"
    throttled = f"sum by (instance, device) (increase(kernelopt_device_measurements_throttled_total[30m])) / {measured}"
    reasons = target(per_minute("kernelopt_device_throttle_reasons_total", "reason"), "{{reason}}")
    hardware = 'sum by (instance, device, xid) (increase(kernelopt_device_xids_total{fault="hardware"}[24h])) > 0'
    xids = {"instance": "agent", "device": "device", "xid": "XID", "Value": "times"}
    faults = "application: a candidate's own doing; hardware: the GPU must be looked at."
    between = "Verifying or measuring, of the time between two beats."
    return Row(
        "Devices",
        [
            chart("Busy share", "percentunit", target("kernelopt_device_busy_ratio", BY_DEVICE), most=1, help=between),
            chart("Clock of the multiprocessors", "hertz", target("kernelopt_device_sm_clock_hertz", BY_DEVICE)),
            chart("Temperature", "celsius", target("kernelopt_device_temperature_celsius", BY_DEVICE)),
            chart("Power", "watt", target("kernelopt_device_power_watts", BY_DEVICE)),
            chart("Share of evaluations throttled, 30 min", "percentunit", target(throttled, BY_DEVICE), most=1),
            chart("Reasons for a lower clock, a minute", "short", reasons),
            chart("XIDs, an hour", "short", target(per_hour("kernelopt_device_xids_total", "fault"), "{{fault}}"), help=faults),
            table("XIDs of hardware, 24 h", xids, target(hardware, instant=True, table=True)),
            table("In quarantine", {"host": "host", "Value": "agents"}, target("kernelopt_agents_quarantined", instant=True, table=True)),
        ],
    )


def _memory() -> Row:
    redis = [
        target("kernelopt_redis_up", "up"),
        target("kernelopt_frontier_offers_pending", "offers pending"),
        target(per_hour("kernelopt_frontier_rebuilds_total"), "rebuilds, an hour"),
    ]
    times = [target(quantile(0.95, f"kernelopt_frontier_{what}_seconds"), what) for what in ("offer", "rebuild")]
    events = [
        target(per_second("kernelopt_journal_events_total"), "events"),
        target(per_second("kernelopt_journal_failures_total"), "failed"),
    ]
    return Row(
        "Frontier and journal",
        [
            chart("Improvements, an hour", "short", target(per_hour("kernelopt_frontier_improvements_total", "class", CLASS), "{{class}}")),
            chart("Offers a minute", "short", target(per_minute("kernelopt_frontier_offers_total", "result"), "{{result}}")),
            chart("Redis", "short", *redis),
            chart(
                "Journal append", "s", *quantiles("kernelopt_journal_append_seconds"), width=6, help="One batch, to when it is on the disk."
            ),
            chart("Events not yet on the disk", "short", target("kernelopt_journal_unwritten_events", "{{instance}}"), width=6),
            chart("Events a second", "short", *events, width=6),
            chart("Offers and rebuilds, 95th percentile", "s", *times, width=6),
        ],
    )


def _broker() -> Row:
    unread = [
        target(per_hour("kernelopt_messages_malformed_total", "reason"), "malformed: {{reason}}"),
        target(per_hour("kernelopt_dead_letters_total", "kind"), "dead: {{kind}}"),
    ]
    states = target(now("kernelopt_broker_state", "state"), "{{state}}")
    failures = target(per_minute("kernelopt_broker_publish_failures_total", "cause"), "{{cause}}")
    reconnects = target(per_hour("kernelopt_broker_reconnects_total", "instance"), "{{instance}}")
    requests = target(per_minute("kernelopt_http_requests_total", "status"), "{{status}}")
    waiting = target("kernelopt_broker_queue_messages", "{{queue}}")
    frames = [
        target(per_second("kernelopt_broker_published_total", "kind"), "published: {{kind}}"),
        target(per_second("kernelopt_broker_received_total", "kind"), "received: {{kind}}"),
        target(per_second("kernelopt_broker_redelivered_total"), "delivered again"),
    ]
    return Row(
        "Broker and API",
        [
            chart("Processes by state of their broker", "short", states, stack=True),
            chart("Frames a second", "short", *frames, width=16, help="Of all processes: what one publishes another receives."),
            chart("Publish", "s", *quantiles("kernelopt_broker_publish_seconds"), help="From a publication to its confirmation."),
            chart("Frames not taken, a minute", "short", failures),
            chart("Frames in queues", "short", waiting, help="Delivered to nobody yet."),
            chart("Consumers of queues", "short", target("kernelopt_broker_queue_consumers", "{{queue}}")),
            chart("Malformed and dead, an hour", "short", *unread),
            chart("Reconnections, an hour", "short", reconnects),
            chart("Requests a minute", "short", requests, stack=True, width=12),
            chart(
                "Requests, 95th percentile", "s", target(quantile(0.95, "kernelopt_http_request_seconds", "route"), "{{route}}"), width=12
            ),
        ],
    )


def model() -> dict:
    """The dashboard."""
    return dashboard(
        uid="kernelopt-fleet",
        title="KernelOPT: the fleet",
        description="What waits, what is done, who is ill.",
        variables=[datasource_variable(), label_variable("class", "Device class", "kernelopt_tasks_outstanding", several=True)],
        links=[link("One job", "kernelopt-job")],
        rows=[_now(), _lanes(), _work(), _faults(), _agents(), _devices(), _memory(), _broker()],
        since="now-3h",
    )
