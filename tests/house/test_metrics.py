"""The manual, the alert rules and the dashboard match the metrics of the code, and each alert has a runbook."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from prometheus_client import Counter, Gauge, Histogram

from service.observability import metrics
from tests.support.metrics_scrape import Scrape
from tests.support.servers import CHECKOUT

MANUAL = (CHECKOUT / "docs" / "reference" / "metrics.md").read_text()
ALERTS = yaml.safe_load((CHECKOUT / "deployment" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHECKOUT / "deployment" / "grafana-dashboard.json").read_text())

DOCUMENTS_URL = "https://docs.example/"
"""The placeholder for the address at which an operator publishes the folder docs."""

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


def make_anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading: lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the manual."""
    _, _, below = MANUAL.partition(f"\n{heading}\n")
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def test_manual_lists_every_metric_with_its_labels() -> None:
    rows = rows_below("## All metrics")
    described = [(name, set(re.findall(r"`(\w+)`", row[1]))) for row in rows for name in re.findall(r"`(\w+)`", row[0])]

    assert len(described) == len(LABELS)
    assert dict(described) == LABELS


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
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_every_alert_links_to_the_section_that_names_it() -> None:
    for rule in rules():
        url: str = rule["annotations"]["runbook_url"]
        path, _, anchor = url.removeprefix(DOCUMENTS_URL).partition("#")
        page = CHECKOUT / "docs" / path
        sections = re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE)
        [section] = [section for section in sections if make_anchor(section.partition("\n")[0]) == anchor]

        assert url.startswith(DOCUMENTS_URL)
        assert rule["alert"] in section
