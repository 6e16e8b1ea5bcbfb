"""The pipeline, ended with its test."""

import pytest
from pipeline import Pipeline


@pytest.fixture
def pipeline(tmp_path):
    running = Pipeline(tmp_path)
    yield running
    running.close()
