import pytest
import torch
from engine.tiny_models import near, tiny_model

from specscope.engine.model.decoder import Decoder


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target() -> Decoder:
    return tiny_model(0)


@pytest.fixture(scope="session")
def draft(target: Decoder) -> Decoder:
    return near(target, 0.05)
