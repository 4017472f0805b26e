"""The one exception family: what was wrong, where, and what to do about it.

Every error a user can cause is a `JumpforwardError`. Its text is one line that names the thing, the place and
the way out; `as_dict` is the same for `--json`. A constraint that cannot be served is an error and never an
unconstrained answer (upstream served those until #6803; see the museum).
"""

from __future__ import annotations

from typing import Literal, Self

Blame = Literal["grammar", "unclear", "machine"]


class JumpforwardError(Exception):
    """Base of every error this project raises on purpose.

    Args:
        message: what is wrong, naming the value.
        where: the place: a parameter, a file and field, or an offset in a pattern.
        fix: what the user can do.

    Attributes:
        blame: of an error that ended a compile: would the same constraint fail again? Caches ask; the rule is in
            `shared_runtime/constrain/compiling/failures.py`.
    """

    blame: Blame = "grammar"

    def __init__(self, message: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.message = message
        self.where = where
        self.fix = fix
        super().__init__(self.__str__())

    def blamed(self, blame: Blame) -> Self:
        """This error, with `blame`."""
        self.blame = blame
        return self

    def __str__(self) -> str:
        text = self.message if self.where is None else f"{self.where}: {self.message}"
        return text if self.fix is None else f"{text} ({self.fix})"

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it: type, message, offset (None unless the error has one)."""
        return {"type": type(self).__name__, "message": str(self), "offset": getattr(self, "offset", None)}


class ConfigError(JumpforwardError):
    """An engine setting or command-line option that cannot work."""


class RequestError(JumpforwardError):
    """A request that is refused at admission: parameters, prompt length, duplicate id."""


class CheckpointError(JumpforwardError):
    """A model file that is missing, truncated, unsupported or mismatched; `where` names file and field."""


class ModelDownloadError(CheckpointError):
    """The embedded model cannot be fetched, verified or written."""


class ConstraintError(JumpforwardError):
    """A constraint that cannot be compiled or served; base of the four below."""


class GrammarSyntaxError(ConstraintError):
    """A pattern, schema or grammar that does not parse.

    Args:
        offset: character offset in the source text, None when the parser gave none.
    """

    def __init__(self, message: str, *, offset: int | None = None, where: str | None = None,
                 fix: str | None = None) -> None:
        self.offset = offset
        if where is None and offset is not None:
            where = f"position {offset}"
        super().__init__(message, where=where, fix=fix)


class UnsupportedConstraintError(ConstraintError):
    """A construct or a constraint kind that this stage's generation does not have.

    Args:
        first_stage: the first stage that can, None when none can.
        offset: character offset in the source text, where there is one.
    """

    def __init__(self, message: str, *, first_stage: int | None = None, offset: int | None = None,
                 where: str | None = None, fix: str | None = None) -> None:
        self.first_stage = first_stage
        self.offset = offset
        if where is None and offset is not None:
            where = f"position {offset}"
        super().__init__(message, where=where, fix=fix)


class UnsatisfiableConstraintError(ConstraintError):
    """No text of the language can be spelled with this vocabulary (the message names the bytes missing)."""


class GrammarTimeoutError(ConstraintError):
    """A compile ran past `compile_timeout`, or grew past the state limit."""


class EngineStateError(JumpforwardError):
    """The engine was used in a way its state does not allow (a closed engine, an unknown request id)."""


class IntegrityError(AssertionError):
    """The books of the KV pool do not balance: a defect of this project, never of a request."""
