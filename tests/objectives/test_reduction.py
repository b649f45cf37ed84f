import torch
from torch.testing import assert_close

from triptych.objectives import info_nce, mean, symmetric


def test_mean_of_values_and_of_none() -> None:
    assert mean(torch.tensor([1.0, 2.0, 6.0])).item() == 3.0
    assert mean(torch.zeros(0)).item() == 0.0


def test_both_directions_of_a_matrix_by_hand() -> None:
    s = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    rows = info_nce(s, temperature=1.0)
    columns = info_nce(s.T, temperature=1.0)
    assert not torch.equal(rows, columns)
    assert_close(symmetric(lambda x: info_nce(x, temperature=1.0), s), (rows + columns) / 2)
