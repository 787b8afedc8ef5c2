"""The dashboard of one running job, and of the fleet that it runs on."""

from panels import (
    BLUE,
    GREEN,
    ORANGE,
    YELLOW,
    Row,
    chart,
    dashboard,
    datasource_variable,
    dial,
    label_variable,
    link,
    number,
    quantiles,
    target,
)
from queries import now, per_minute

# 1.38x
SPEEDUP = "suffix:x"


def _of_job(figure: str) -> str:
    return f'kernelopt_job_{figure}{{job_id="$job_id"}}'


def _now() -> Row:
    best = "Confirmed, over the compiler's kernel; 1 before the first."
    return Row(
        "The job",
        [
            number("Best speed-up of a kernel", SPEEDUP, _of_job("best_speedup_ratio"), (None, BLUE), (1.005, GREEN), width=5, help=best),
            number("Targets won", "none", _of_job("targets_won"), width=5, help="Targets with a confirmed winner."),
            number("Candidates judged", "short", _of_job("candidates_judged"), width=5),
            number("Tasks outstanding", "short", _of_job("tasks_outstanding"), width=5),
            dial("Budget spent", _of_job("budget_spent_ratio"), (None, GREEN), (0.8, YELLOW), (0.95, ORANGE), width=4),
        ],
    )


def _course() -> Row:
    outstanding = [target(_of_job("tasks_outstanding"), "tasks"), target(now("kernelopt_job_tasks_outstanding"), "of all shown jobs")]
    judged = f"60 * deriv({_of_job('candidates_judged')}[5m])"
    return Row(
        "Its course",
        [
            chart("Best speed-up of a kernel", SPEEDUP, target(_of_job("best_speedup_ratio"), "speed-up"), width=12),
            chart("Targets won", "short", target(_of_job("targets_won"), "targets"), width=12),
            chart("Candidates judged a minute", "short", target(judged, "candidates")),
            chart("Tasks outstanding", "short", *outstanding),
            chart("Budget spent", "percentunit", target(_of_job("budget_spent_ratio"), "spent"), most=1),
        ],
    )


def _fleet() -> Row:
    busy = [target("avg(kernelopt_device_busy_ratio)", "mean"), target("min(kernelopt_device_busy_ratio)", "least")]
    expired = target(per_minute("kernelopt_leases_expired_total", "cause"), "expired: {{cause}}")
    return Row(
        "The fleet meanwhile",
        [
            chart("Tasks by state", "short", target(now("kernelopt_tasks_outstanding", "state"), "{{state}}"), stack=True),
            chart("Verdicts a minute", "short", target(per_minute("kernelopt_verdicts_total", "verdict"), "{{verdict}}"), stack=True),
            chart("Busy share of devices", "percentunit", *busy, most=1),
            chart("Wait in the queue", "s", *quantiles("kernelopt_task_queue_wait_seconds")),
            chart("Leases expired a minute", "short", expired),
            chart("Best speed-up of all shown jobs", SPEEDUP, target("kernelopt_job_best_speedup_ratio", "{{job_id}}")),
        ],
    )


def model() -> dict:
    """The dashboard."""
    return dashboard(
        uid="kernelopt-job",
        title="KernelOPT: one job",
        description="A job while it runs. Fifty jobs are shown at most, and ended ones go: `kernelopt job ID` and its report say the rest.",
        variables=[datasource_variable(), label_variable("job_id", "Job", "kernelopt_job_best_speedup_ratio", several=False)],
        links=[link("The fleet", "kernelopt-fleet")],
        rows=[_now(), _course(), _fleet()],
        since="now-1h",
    )
