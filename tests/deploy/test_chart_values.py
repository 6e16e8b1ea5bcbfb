"""Values are documented, typed, and refused where they make no sense."""

from __future__ import annotations

import json

import helm_python
import jsonschema
import pytest
import yaml
from chart_rendering import CHART, render

NONSENSE = {
    "two replicas of an embedded store": {"service": {"replicas": 2}},
    "an external store without its secret": {"store": {"kind": "clickhouse"}},
    "a secret that an embedded store would not read": {"store": {"existingSecret": "x"}},
    "a store that does not exist": {"store": {"kind": "sqlite"}},
    "no room for the store": {"store": {"size": "0Gi"}},
    "a misspelt value": {"sidecar": {"spool": {"mebibyte": 100}}},
    "a misspelt section": {"sidecars": {}},
    "a port out of range": {"service": {"grpcPort": 70000}},
    "a port as text": {"service": {"httpPort": "8123"}},
    "a ring of no size": {"hook": {"ring": {"mebibytes": 0}}},
    "a ring larger than any node": {"hook": {"ring": {"mebibytes": 1 << 20}}},
    "rings in a relative directory": {"hook": {"ringsPath": "run/specscope"}},
    "a token itself instead of its secret's name": {"service": {"applyTokenSecret": "S3cret!"}},
    "a negative price": {"hook": {"pricePerHour": -1}},
    "a share above one": {"sidecar": {"otlp": {"sample": 1.5}}},
    "a service without a port": {"sidecar": {"service": "elsewhere"}},
    "a schedule of four fields": {"report": {"schedule": "0 6 * *"}},
    "a period without a unit": {"report": {"since": "7"}},
    "a shell in the link": {"report": {"link": "https://x'; rm -rf /"}},
    "a webhook in place of its secret": {"report": {"send": "https://hooks.example.org/x"}},
    "a shell in the period": {"report": {"since": "7d'; rm -rf /"}},
    "a memory limit that is no quantity": {
        "service": {"resources": {"limits": {"memory": "4 gigabytes"}}}
    },
    "a tag with a digest's characters": {"image": {"tag": "sha256:abc"}},
}


def every_key(values, path=()):
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from every_key(value, (*path, key))


def declared_keys(schema, path=()):
    for key, part in schema.get("properties", {}).items():
        yield (*path, key)
        yield from declared_keys(part, (*path, key))


@pytest.fixture(scope="module")
def schema():
    return json.loads((CHART / "values.schema.json").read_text())


@pytest.fixture(scope="module")
def defaults():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_schema_is_a_schema_and_the_defaults_follow_it(schema, defaults):
    jsonschema.Draft7Validator.check_schema(schema)

    jsonschema.Draft7Validator(schema).validate(defaults)


def test_schema_and_defaults_name_the_same_values(schema, defaults):
    free_form = {"resources", "podAnnotations", "nodeSelector", "affinity", "labels"}
    free_form |= {"sidecarNamespaces"}

    written = {k for k in every_key(defaults) if not free_form & set(k[:-1])}

    declared = {k for k in declared_keys(schema) if k != ("global",)}
    assert written == declared


def test_every_value_has_a_comment_that_says_what_it_does():
    lines = (CHART / "values.yaml").read_text().splitlines()

    for number, line in enumerate(lines):
        key = line.strip()
        is_value = key and not key.startswith("#") and not key.endswith(":")
        in_resources = line.startswith(("    requests:", "    limits:"))
        if is_value and not in_resources:
            assert lines[number - 1].lstrip().startswith("#"), f"line {number + 1}: {key}"


@pytest.mark.parametrize("values", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_refused_before_anything_is_rendered(values):
    with pytest.raises(helm_python.HelmError) as refusal:
        render(values)

    assert "schema" in str(refusal.value)


def test_each_piece_of_nonsense_is_refused_for_its_own_reason(schema, defaults):
    for reason, values in NONSENSE.items():
        merged = merge(defaults, values)

        errors = list(jsonschema.Draft7Validator(schema).iter_errors(merged))

        places = {tuple(e.absolute_path)[:1] for e in errors}
        assert places <= {(next(iter(values)),), ()}, reason


def merge(base, over):
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = merge(base[key], value) if both else value
    return merged
