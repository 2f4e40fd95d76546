"""Training over ranks (2 and 4 processes, gloo): tensor parallel layers, FSDP2 and DDP against one process."""

import distributed
import pytest

MODULES = ("distributed_tensor_parallel", "distributed_data_parallel")


@pytest.fixture(scope="module", params=[(m, n) for m in MODULES for n in (2, 4)], ids=lambda p: f"{p[0].removeprefix('distributed_')}-{p[1]}")
def results(request):
    module, world = request.param
    return module, world, distributed.launch(world, "gloo", module)


def test_every_case(results):
    module, world, said = results
    assert set(said) == set(distributed.cases(module)) and len(said) >= 5
    wrong = [f"{case}: {failure}" for case, failures in said.items() for failure in failures]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES)
def test_over_nccl(module):
    distributed.needs_gpus(2)
    wrong = [f"{case}: {failure}" for case, failures in distributed.launch(2, "nccl", module).items() for failure in failures]
    assert not wrong, "\n".join(wrong)
