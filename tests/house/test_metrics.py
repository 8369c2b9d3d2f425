"""The metrics that there are, and what the manual, the alert rules and the dashboard say of them, are the same."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from prometheus_client import Counter, Gauge, Histogram

from service.observability import metrics
from tests.support.metrics_scrape import Scrape
from tests.support.servers import CHECKOUT

OPERATIONS = (CHECKOUT / "docs" / "how-to" / "monitor.md").read_text()
ALERTS = yaml.safe_load((CHECKOUT / "deployment" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHECKOUT / "deployment" / "grafana-dashboard.json").read_text())

SELECTOR = re.compile(r"\b(token_service_\w+)\s*(?:\{([^}]*)\})?")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
OF_PROMETHEUS = {"instance", "job", "le"}


def labels_by_metric() -> dict[str, set[str]]:
    """The names as they are told to Prometheus, without what stands at the end of a histogram's samples."""
    found = {
        metric._name + ("_total" if isinstance(metric, Counter) else ""): set(metric._labelnames)
        for metric in vars(metrics.get_metrics()).values()
        if isinstance(metric, Counter | Gauge | Histogram)
    }
    assert found.keys() == {name_of(family.name, family.type) for family in Scrape(metrics.render().decode()).families}
    return found


def name_of(family: str, kind: str) -> str:
    return f"{family}_total" if kind == "counter" else family


def metric_of(sample: str) -> str:
    for ending in ("_bucket", "_count", "_sum"):
        if sample.removesuffix(ending) in LABELS:
            return sample.removesuffix(ending)
    return sample


LABELS = labels_by_metric()


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the manual."""
    _, _, below = OPERATIONS.partition(f"\n{heading}\n")
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def test_manual_lists_every_metric_with_its_labels() -> None:
    rows = rows_below("### What there is")
    described = {row[0].strip("|` "): set(re.findall(r"`(\w+)`", row[1])) for row in rows}

    assert described == LABELS


def test_rules_and_dashboard_name_existing_metrics() -> None:
    for where, expression in expressions():
        selectors = SELECTOR.findall(expression)
        assert selectors or where == "TokenServiceDown", where
        known = set(OF_PROMETHEUS)
        for sample, matchers in selectors:
            labels = LABELS.get(metric_of(sample))
            assert labels is not None, (where, sample)
            known |= labels
            assert {label for label, _ in MATCHER.findall(matchers)} <= labels | OF_PROMETHEUS, (where, sample)
        for grouping in GROUPING.findall(expression):
            assert {label.strip() for label in grouping.split(",")} <= known, (where, grouping)


def test_every_alert_is_explained_in_the_rule_and_in_the_manual() -> None:
    names = [rule["alert"] for rule in rules()]

    assert len(set(names)) == len(names)
    assert [row[0].strip("|` ") for row in rows_below("### Alerts")] == names
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}
