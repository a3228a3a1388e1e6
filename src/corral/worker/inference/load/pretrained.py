"""Loads models and tokenizers with transformers, and says in one line what is wrong.

Only files of this machine are looked at, and code in a model's folder is left alone
unless its definition allows it.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer
from transformers.utils import logging as chatter

from corral.worker.inference.errors import (
    REMOTE_CODE,
    ModelOutOfMemory,
    Unusable,
    is_out_of_memory,
    one_line,
)
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.load.weights import MB

# transformers imports most of itself with its first model: seconds that would be taken
# for that model's load.
for _part in ("modeling_utils", "generation.utils"):
    import_module(f"transformers.{_part}")
# A bar that fills up belongs in a terminal, not in the log of somebody's task.
chatter.disable_progress_bar()
chatter.set_verbosity_error()
# The first number in a parameter's name counts layers.
_LAYER = re.compile(r".*?\.\d+(?=\.)")


def load_model(auto: Any, ref: ModelRef, plan: DevicePlan, **more: Any) -> Any:
    """The model on its device, ready to answer."""
    options = options_of(ref) | {"dtype": getattr(torch, plan.dtype)} | more
    if plan.is_spread:
        limits = {key: math.floor(mb * MB) for key, mb in plan.max_memory.items()}
        options |= {"device_map": "auto", "max_memory": limits}
        options |= {"offload_folder": plan.offload_dir} if plan.offload_dir else {}
    with explained(ref):
        model = auto.from_pretrained(str(ref.folder), **options)
        if not plan.is_spread:
            model = model.to(plan.device.name)
    return model.eval()


def home_of(model: Any, plan: DevicePlan) -> str:
    """The device that inputs go to: of a model that is spread, its first part's."""
    if not plan.is_spread:
        return plan.device.name
    places = [p for p in model.hf_device_map.values() if p not in ("disk", "meta")]
    first = places[0] if places else "cpu"
    return f"cuda:{first}" if isinstance(first, int) else str(first)


def load_tokenizer(ref: ModelRef) -> Any:
    with explained(ref):
        return AutoTokenizer.from_pretrained(str(ref.folder), **options_of(ref))


def options_of(ref: ModelRef) -> dict[str, Any]:
    return {"local_files_only": True, "trust_remote_code": ref.trust_remote_code}


@contextmanager
def explained(ref: ModelRef) -> Iterator[None]:
    """What a library raises on a broken model, as a failure that is not its trace."""
    try:
        yield
    except SafetensorError as error:
        text = f"model {ref.name} is corrupt: {one_line(error)}; fetch it again"
        raise Unusable(text, "corrupt_model") from None
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError,
        ImportError, EOFError, pickle.UnpicklingError,
    ) as error:  # fmt: skip
        raise _explain(ref, error) from None


def _explain(ref: ModelRef, error: Exception) -> Exception:
    if is_out_of_memory(error):
        return ModelOutOfMemory(
            f"no memory to load model {ref.name}: {one_line(error)}"
        )
    said = str(error)
    if "trust_remote_code" in said:
        text = (
            f"model {ref.name} brings code of its own; an administrator allows it with "
            "trust_remote_code in the model's definition"
        )
        return Unusable(text, REMOTE_CODE)
    if isinstance(error, ImportError):
        text = f"model {ref.name} needs a library that is not here: {said}"
        return Unusable(text, "missing_library")
    text = f"model {ref.name} cannot be loaded: {said or type(error).__name__}"
    return Unusable(text, "unsupported_model")


def longest(model: Any, tokenizer: Any) -> int | None:
    """How many tokens the model takes at most; None where it does not say."""
    config = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    told = [
        getattr(config, name, None)
        for name in ("max_position_embeddings", "n_positions", "max_seq_len")
    ]
    told.append(getattr(tokenizer, "model_max_length", None))
    known = [int(n) for n in told if isinstance(n, int | float) and 0 < n < 1e9]
    return min(known, default=None)


def weights_mb(*modules: Any) -> float:
    """What parameters and buffers take, each counted once; not what is on disk."""
    seen = {
        tensor.data_ptr() or id(tensor): tensor.numel() * tensor.element_size()
        for module in modules
        for tensor in (*module.parameters(), *module.buffers())
        if tensor.device.type != "meta"
    }
    return float(sum(seen.values())) / MB


def precision_of(*modules: Any) -> str | None:
    """The type of most of the numbers: what was loaded, not what was asked for."""
    count: Counter[str] = Counter()
    for module in modules:
        for tensor in module.parameters():
            count[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    return count.most_common(1)[0][0] if count else None


def layers_of(*modules: Any) -> dict[str, int]:
    """How many layers are on which device; what lies on disk is told as such."""
    found: dict[tuple[int, str], str] = {}
    for number, module in enumerate(modules):
        places = getattr(module, "hf_device_map", None) or {}
        for name, tensor in module.named_parameters():
            layer = _LAYER.match(name)
            where = _place_of(name, places) or str(tensor.device)
            if layer is not None:
                found.setdefault((number, layer[0]), where)
    return dict(Counter(found.values()))


def _place_of(name: str, places: Mapping[str, Any]) -> str | None:
    """Where accelerate has put it: it moves what is elsewhere only to compute."""
    for prefix in sorted(places, key=len, reverse=True):
        if not prefix or name == prefix or name.startswith(f"{prefix}."):
            place = places[prefix]
            return f"cuda:{place}" if isinstance(place, int) else str(place)
    return None


def on_device(inputs: Any, device: str) -> dict[str, Any]:
    return {name: tensor.to(device) for name, tensor in inputs.items()}


class TorchModel:
    """Base of models of torch: keeps what is to be let go of at the end."""

    def __init__(self, *modules: Any) -> None:
        self._modules = list(modules)
        self._facts: dict[str, Any] | None = None

    def weights_mb(self) -> float:
        return weights_mb(*self._modules)

    def facts(self) -> dict[str, Any]:
        """Asked after every batch; weights stay where they are."""
        if self._facts is None:
            self._facts = {
                "precision": precision_of(*self._modules),
                "layers": layers_of(*self._modules),
            }
        return self._facts

    def unload(self) -> None:
        # Whatever a subclass has made of it goes, too.
        self.__dict__.clear()
