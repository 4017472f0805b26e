"""What a row of the museum shows: a specimen, the real parts it stands beside, and the invariant between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar
from unittest.mock import patch

from tests.museum.bench import Bench

T = TypeVar("T")


@dataclass(frozen=True)
class Injection:
    """A specimen in the place of the real part, in a whole stage.

    Attributes:
        owner, name: the module or class, and its attribute, that is replaced. value: by what: the specimen, or
            something with the specimen in it.
        scenario: runs the stage and raises `Broken` where the fault shows; silent without the specimen.
        symptom: regex of what it says then.
    """

    owner: object
    name: str
    value: object
    scenario: Callable[[Bench], None]
    symptom: str

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it the stage has the specimen, whatever engine is built."""
        with patch.object(self.owner, self.name, self.value):
            yield


@dataclass(frozen=True)
class Exhibit(Generic[T]):
    """One row.

    Attributes:
        row: its number. specimen: the wrong variant.
        real: by name, every part that the specimen is a drop-in for, or an adapter to a stage's part of that role.
        invariant: called with a part and a bench; raises `Broken` when the part is wrong.
        symptom: regex of what the invariant says of the specimen.
        injection: how the specimen gets into a stage; None where the runtime leaves no way (the metadata say why).
    """

    row: int
    specimen: T
    real: Mapping[str, T]
    invariant: Callable[[T, Bench], None]
    symptom: str
    injection: Injection | None = None
