"""A registry of factories by name, of which some are imported when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared_runtime.errors import ConfigError
from shared_runtime.policy import StageContext

T = TypeVar("T")


@dataclass
class LazyRegistry(Generic[T]):
    """Grammar backends by name.

    Attributes:
        package: what the modules of `lazy` are relative to. lazy: name -> "module:class".
        factories: name -> what makes the backend; goes before `lazy`.
    """

    package: str
    lazy: Mapping[str, str]
    factories: dict[str, Callable[[StageContext], T]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that `create` knows."""
        return tuple(dict.fromkeys((*self.lazy, *self.factories)))

    def create(self, name: str, context: StageContext) -> T:
        """The backend of that name.

        Raises:
            ConfigError: there is none.
        """
        if name in self.factories:
            return self.factories[name](context)
        if name not in self.lazy:
            raise ConfigError(f"no grammar backend {name!r}", where="backend",
                              fix=f"use one of: {', '.join(self.names)}, or register_backend")
        module, _, attribute = self.lazy[name].partition(":")
        factory: Callable[[StageContext], T] = vars(importlib.import_module(module, self.package))[attribute]
        return factory(context)
