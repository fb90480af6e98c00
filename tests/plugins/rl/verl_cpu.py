"""verl on a machine without an accelerator: a platform `cpu` for its registry, and rollout servers
`tiny` by transformers, so that its own trainer runs whole in a test. Loaded by
VERL_USE_EXTERNAL_MODULES before our plugin.

What is verl's in such a run: configuration, Ray workers, TransferQueue, agent-loop workers, FSDP2
on gloo, the losses' callers, optimiser, weight sync's calls, checkpoints. What stands in: the
accelerator, and vLLM.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import ray
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.workers.rollout import base as rollouts
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from tests.plugins.rl.verl_server import Server


class _Device(ModuleType):
    """torch.cpu, where what only accelerators have does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(torch.cpu, name, None)
        known = {"mem_get_info": (0, 0), "get_device_name": "cpu"}
        if name in known:
            return lambda *a, **k: known[name]
        return found if found is not None else lambda *a, **k: 0


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "none"
    device_module = _Device("cpu")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...
    def synchronize(self, device_index: int | None = None) -> None: ...
    def manual_seed(self, seed: int) -> None: ...
    def manual_seed_all(self, seed: int) -> None: ...
    def set_allocator_settings(self, settings: str) -> None: ...
    def empty_cache(self) -> None: ...
    def profiler_start(self) -> None: ...
    def profiler_stop(self) -> None: ...
    def cudart(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "NO_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Any:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"  # verl counts no other; Ray is told that there is one

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True


class Replica(RolloutReplica):
    async def launch_servers(self) -> None:
        name = f"tiny_server_{self.replica_rank}"
        self._server_handle = (
            ray.remote(Server).options(name=name, num_cpus=0).remote(self.model_config.path)
        )
        self.servers, self._server_address = [self._server_handle], "tiny:0"
        await self._server_handle.clear_kv_cache.remote()


class Adapter(rollouts.BaseRollout):
    """What a trainer's worker holds of its server."""

    async def resume(self, tags: list[str]) -> None: ...
    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        server = ray.get_actor(f"tiny_server_{int(os.environ['RANK'])}")
        sent = {n: t.detach().float().cpu() for n, t in weights}
        await server.load.remote(sent, global_steps)


def _one_backend(
    backend: Any = None,
    *arguments: Any,
    _begin: Any = torch.distributed.init_process_group,
    **named: Any,
) -> Any:
    """verl asks for gloo beside the device's own backend, and here both are the CPU's."""
    return _begin("gloo", *arguments, **named)


torch.distributed.init_process_group = _one_backend
rollouts._ROLLOUT_REGISTRY["tiny", "async"] = f"{__name__}.Adapter"
RolloutReplicaRegistry.register("tiny", lambda: Replica)
