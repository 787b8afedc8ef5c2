"""PromQL that the dashboards share."""

# What the variable `class` of the fleet's dashboard selects.
CLASS = 'class=~"$class"'


def _by(labels: str) -> str:
    return f"sum by ({labels})" if labels else "sum"


def _of(metric: str, where: str) -> str:
    return f"{metric}{{{where}}}" if where else metric


def per_second(metric: str, by: str = "", where: str = "") -> str:
    """Events a second."""
    return f"{_by(by)} (rate({_of(metric, where)}[$__rate_interval]))"


def per_minute(metric: str, by: str = "", where: str = "") -> str:
    """Events a minute."""
    return f"60 * {per_second(metric, by, where)}"


def per_hour(metric: str, by: str = "", where: str = "") -> str:
    """Events in the last hour: for what is rare."""
    return f"{_by(by)} (increase({_of(metric, where)}[1h]))"


def now(metric: str, by: str = "", where: str = "") -> str:
    """A gauge, summed."""
    return f"{_by(by)} ({_of(metric, where)})"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {per_second(histogram + '_bucket', labels, where)})"
