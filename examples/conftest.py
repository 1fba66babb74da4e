from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset


@pytest.fixture(scope="session")
def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,347 handwritten digits of 8x8 pixels to learn from, and 450 to test with."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16, labels, random_state=0)
    train_images, test_images = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    train_labels, test_labels = (torch.tensor(part) for part in split[2:])
    return TensorDataset(train_images, train_labels), TensorDataset(test_images, test_labels)
