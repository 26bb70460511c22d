#!/usr/bin/env python3
"""Writes `dashboard.json` and `prometheus-rule.yaml`: the panels are below, the rules in `rules.yaml`.

usage: generate.py            writes both files
       generate.py --check    fails if one of them is not what would be written

Needs the package pyyaml.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import yaml

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: The width of a dashboard in units of Grafana's grid, and the height of a panel.
WIDTH, HEIGHT = 24, 8

OF_JOB = '{job=~"$job"}'
RATE = "[$__rate_interval]"
STATES = {"busy": "busy", "input_wait": "waits for input", "output_wait": "waits for output", "throttled": "throttled"}

#: A panel: title, kind, unit, description, and its expressions with their legends.
Panel = tuple[str, str, str, str, dict[str, str]]


def state_of_units(state: str) -> str:
    return f"sum by (stage) (rate(spdl_worker_stage_{state}_seconds_total{RATE})) / sum by (stage) (spdl_worker_stage_units > 0)"


def rate_by_stage(counter: str) -> str:
    return f"sum by (stage) (rate(spdl_worker_stage_{counter}_total{RATE}))"


ROWS: dict[str, list[Panel]] = {
    "Jobs": [
        (
            "Samples per second",
            "timeseries",
            "short",
            "What the slowest rank of each job took.",
            {f"spdl_coordinator_job_samples_per_second{OF_JOB}": "{{job}}"},
        ),
        (
            "Ranks that wait most",
            "timeseries",
            "percentunit",
            "The fraction of its time that a rank waited for batches.",
            {f"topk(10, spdl_coordinator_rank_waiting_ratio{OF_JOB})": "{{job}} rank {{rank}}"},
        ),
        (
            "What limits the ranks",
            "stacked",
            "short",
            "Ranks by their limit. `trainer` is as it should be.",
            {f"sum by (limit) (spdl_coordinator_job_ranks_limited{OF_JOB})": "{{limit}}"},
        ),
        (
            "What would help",
            "bargauge",
            "percentunit",
            "By how much the job's rate would rise with twice as much of something: predicted, on all nodes at once.",
            {f"spdl_coordinator_job_gain_ratio{OF_JOB} - 1": "{{job}} {{remedy}}"},
        ),
        (
            "The limit of each rank",
            "table",
            "short",
            "Of sessions of at most 1,000 ranks.",
            {f"spdl_coordinator_rank_limit{OF_JOB}": ""},
        ),
        (
            "Bad samples",
            "timeseries",
            "short",
            "Distinct samples that do not decode.",
            {f"spdl_coordinator_job_bad_samples{OF_JOB}": "{{job}}"},
        ),
    ],
    "Stages": [
        *(
            (
                f"Units that are {name}" if state == "busy" else f"Units: {name}",
                "timeseries",
                "percentunit",
                "The share of the units' time, over all workers. The four states add up to 1.",
                {state_of_units(state): "{{stage}}"},
            )
            for state, name in STATES.items()
        ),
        ("Items per second", "timeseries", "short", "Items done.", {rate_by_stage("items"): "{{stage}}"}),
        ("Bytes per second", "timeseries", "Bps", "Bytes done.", {rate_by_stage("bytes"): "{{stage}}"}),
        (
            "Time of an item, p99",
            "timeseries",
            "s",
            "Over all workers, from histograms.",
            {
                f"histogram_quantile(0.99, sum by (stage, le) (rate(spdl_worker_stage_item_seconds_bucket{RATE})))": (
                    "{{stage}}"
                )
            },
        ),
        (
            "Items in front of a stage",
            "timeseries",
            "short",
            "The queue of each stage.",
            {"sum by (stage) (spdl_worker_stage_queue_items)": "{{stage}}"},
        ),
    ],
    "Workers": [
        (
            "CPU budget used",
            "timeseries",
            "percentunit",
            "CPU time of a worker's process, as a part of its budget.",
            {f"rate(spdl_worker_cpu_seconds_total{RATE}) / spdl_worker_budget_cores": "{{instance}}"},
        ),
        (
            "Memory budget used",
            "timeseries",
            "percentunit",
            "Slots and cached blocks, as a part of the budget.",
            {
                "(spdl_worker_slab_bytes + spdl_worker_block_bytes) / spdl_worker_memory_budget_bytes": "{{instance}}",
            },
        ),
        ("Ranks served", "timeseries", "short", "By worker.", {"spdl_worker_ranks": "{{instance}}"}),
        (
            "Ranks that stand still longest",
            "timeseries",
            "s",
            "For how long a rank's next batch has waited.",
            {"topk(10, spdl_worker_rank_stall_seconds)": "{{instance}} rank {{rank}}"},
        ),
    ],
    "Stores": [
        (
            "Requests per second",
            "timeseries",
            "reqps",
            "Hedges among them.",
            {f"rate(spdl_worker_store_requests_total{RATE})": "{{instance}}"},
        ),
        (
            "Time until the first byte",
            "timeseries",
            "s",
            "Mean over all requests.",
            {
                f"sum(rate(spdl_worker_store_first_byte_seconds_total{RATE}))"
                f" / sum(rate(spdl_worker_store_answers_total{RATE}))": "mean",
            },
        ),
        (
            "Faults per second",
            "timeseries",
            "short",
            "What the workers recovered from.",
            {
                f"sum(rate(spdl_worker_store_{fault}_total{RATE}))": fault.replace("_", " ")
                for fault in ("retries", "timeouts", "refusals", "wrong_bytes")
            }
            | {f"sum(rate(spdl_worker_cache_faults_total{RATE}))": "cache faults"},
        ),
        (
            "Hedges per second",
            "timeseries",
            "short",
            "Second requests beside a slow first one, and how many answered first.",
            {
                f"sum(rate(spdl_worker_store_hedges_total{RATE}))": "made",
                f"sum(rate(spdl_worker_store_hedge_wins_total{RATE}))": "won",
            },
        ),
        (
            "Outage",
            "timeseries",
            "s",
            "For how long requests for an object have failed.",
            {"spdl_worker_store_outage_seconds": "{{instance}}"},
        ),
    ],
    "Cluster": [
        (
            "Coordinator leads",
            "timeseries",
            "short",
            "1 for the coordinator that leads.",
            {"spdl_coordinator_leads": "{{instance}}"},
        ),
        (
            "Workers and ranks",
            "timeseries",
            "short",
            "Alive, as the coordinator counts them.",
            {
                "spdl_coordinator_workers": "workers",
                "spdl_coordinator_workers_draining": "workers that drain",
                "sum(spdl_coordinator_job_ranks)": "ranks",
                "sum(spdl_coordinator_job_ranks_homeless)": "ranks without a worker",
            },
        ),
        (
            "Cores",
            "timeseries",
            "short",
            "In the budgets of the workers, and how many the ranks need to not wait for CPU.",
            {
                "spdl_coordinator_worker_cores": "there",
                "spdl_coordinator_worker_cores + spdl_wanted_cores": "needed",
            },
        ),
        (
            "Requests to the coordinator",
            "timeseries",
            "reqps",
            "By outcome.",
            {f"sum by (outcome) (rate(spdl_coordinator_requests_total{RATE}))": "{{outcome}}"},
        ),
        (
            "Pictures decoded per second",
            "timeseries",
            "short",
            "`crop`: only what the crop needs; `whole`: the whole picture.",
            {f"sum by (decoder) (rate(spdl_worker_pictures_total{RATE}))": "{{decoder}}"},
        ),
    ],
}


def panel(number: int, place: dict[str, int], described: Panel) -> dict[str, Any]:
    title, kind, unit, description, expressions = described
    is_instant = kind in ("table", "bargauge")
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "instant": is_instant,
            "range": not is_instant,
            **({"format": "table"} if kind == "table" else {}),
        }
        for at, (expression, legend) in enumerate(expressions.items())
    ]
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 40} if kind == "stacked" else {}
    return {
        "id": number,
        "type": "timeseries" if kind == "stacked" else kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"orientation": "horizontal"} if kind == "bargauge" else {},
    }


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row, described in ROWS.items():
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "gridPos": place, "collapsed": False, "panels": []})
        top += 1
        per_line = 3 if len(described) % 3 == 0 else 4 if len(described) % 4 == 0 else 5
        width = WIDTH // per_line
        for at, one in enumerate(described):
            place = {"x": at % per_line * width, "y": top + at // per_line * HEIGHT, "w": width, "h": HEIGHT}
            panels.append(panel(len(panels) + 1, place, one))
        top += -(-len(described) // per_line) * HEIGHT
    job = "label_values(spdl_coordinator_job_ranks, job)"
    return {
        "uid": "spdl-cluster",
        "title": "spdl-cluster",
        "description": "What the loader does, what limits it, and what would help.",
        "tags": ["spdl-cluster"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "job",
                    "label": "Job",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": {"query": job, "refId": "job"},
                    "definition": job,
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": ["All"], "value": ["$__all"]},
                },
            ]
        },
        "panels": panels,
    }


def prometheus_rule() -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "spdl-cluster", "labels": {"app.kubernetes.io/part-of": "spdl-cluster"}},
        "spec": yaml.safe_load((HERE / "rules.yaml").read_text()),
    }


def main(arguments: list[str]) -> None:
    rule = yaml.safe_dump(prometheus_rule(), sort_keys=False, width=120, allow_unicode=True)
    written = {
        "dashboard.json": json.dumps(dashboard(), indent=1) + "\n",
        "prometheus-rule.yaml": "# Made by generate.py from rules.yaml.\n" + rule,
    }
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    for name, text in written.items():
        path = HERE / name
        if not arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is not what generate.py writes; run it again")


if __name__ == "__main__":
    main(sys.argv[1:])
