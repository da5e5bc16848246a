"""Layers: ``Linear`` with an activation, and ``replace_linear``, which makes a model's layers of that."""

from __future__ import annotations

from typing import Any

import torch

from gemmgen.torch.functional import linear


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """``torch.nn.Linear`` computed by gemmgen, with an ``activation`` behind it where there is one."""

    activation: str | None = None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, activation: str | None = None,
                 **options: Any) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, **options)
        self.activation = activation

    def forward(self, x: Any) -> Any:
        """The layer of a tensor whose last dimension has ``in_features`` elements."""
        return linear(x, self.weight, self.bias, self.activation)

    def extra_repr(self) -> str:
        """As ``torch.nn.Linear`` says it, with the activation."""
        more = f", activation={self.activation}" if self.activation else ""
        return f"{super().extra_repr()}{more}"


def replace_linear(module: Any) -> Any:
    """Have every ``torch.nn.Linear`` of a module, itself among them, computed by gemmgen; the module is returned.

    Layers are changed in place: parameters, hooks and names in ``state_dict`` stay. Subclasses of ``torch.nn.Linear``
    are left as they are.
    """
    for layer in module.modules():
        if type(layer) is torch.nn.Linear:
            layer.__class__ = Linear
    return module
