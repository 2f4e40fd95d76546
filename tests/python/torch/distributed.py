"""Starts the ranks of a distributed test and collects what each case said.

    results = launch(world=2, backend="gloo", module="distributed_fsdp")

Each rank imports the module and runs its functions case_* in order, with (rank, world, device); a case that raises fails on
that rank with its traceback. One start serves all cases of a module, since importing PyTorch takes most of the time.
"""

import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).parent
SECONDS = 240  # a rank that hangs is killed after this


def cases(module):
    """Names of a module's cases."""
    return [name for name in vars(importlib.import_module(module)) if name.startswith("case_")]


def launch(world, backend, module):
    """{case: [text of what went wrong, a rank each that failed]} of a run with `world` processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, str(world), backend, module, folder]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NVFP4_TEST_RANKS": "1"}
        ranks = [subprocess.Popen([*command, str(r)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for r in range(world)]  # fmt: skip
        failed = {name: [] for name in cases(module)}
        done = {name: 0 for name in failed}
        for number, process in enumerate(ranks):
            try:
                output, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output = f"killed after {SECONDS} s\n" + (process.communicate()[0] or "")
            for line in output.splitlines():
                if line.startswith('{"case"'):
                    said = json.loads(line)
                    done[said["case"]] += 1
                    if said["error"]:
                        failed[said["case"]].append(f"rank {number}: {said['error']}")
            for name in failed:
                if done[name] <= number and not failed[name]:
                    failed[name].append(f"rank {number} ended without running it: {output[-3000:]}")
        return failed


def needs_gpus(count):
    """Skips the test, with one line, where there are fewer GPUs or the library is built without CUDA."""
    import pytest
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < count:
        pytest.skip(f"needs {count} GPUs for NCCL and this machine has {found}")


def main(world, backend, module, folder, rank):
    sys.path[:0] = [str(HERE), str(HERE.parents[2] / "bindings" / "python")]
    if os.environ.get("NVFP4_TEST_INSTALLED"):
        sys.path.pop(1)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=90))  # fmt: skip
    code = importlib.import_module(module)
    code.FOLDER = folder
    for name in cases(module):
        error = ""
        try:
            getattr(code, name)(rank, world, device)
        except BaseException:
            error = traceback.format_exc()[-3000:]
        print(json.dumps({"case": name, "error": error}), flush=True)
        if error:  # the ranks are no longer in step: what follows would wait for ever
            os._exit(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
