"""What a grammar library's failure is called here: every error that ends a request is one of our own."""

from __future__ import annotations

from typing import TypeVar

from shared_runtime.constrain.compile_pool import CompileJob, CompilePool
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, JumpforwardError

T = TypeVar("T")


def own_error(error: BaseException, where: str = "constraint") -> JumpforwardError:
    """The error as one of our family; our own stay as they are, without the frames that raised them."""
    if isinstance(error, JumpforwardError):
        return error.with_traceback(None)
    return ConstraintError(f"the grammar library failed: {type(error).__name__}: {error}", where=where,
                           fix="try another --backend")


def compile_outcome(job: CompileJob[T], pool: CompilePool[T], limit: float, now: float) -> T | JumpforwardError | None:
    """What has become of a compile: its result, why there is none, or None while it goes on.

    The time limit counts from when a thread took it up. A job that waits for a thread has none, unless every thread
    is lost to a compile that was given up. A job that is out of time is given up here.

    Args:
        limit: seconds. now: on the monotonic clock.
    """
    if job.future.done():
        error = job.future.exception()
        return job.future.result() if error is None else own_error(error)
    started = job.started
    if now - (job.queued if started is None else started) <= limit or (started is None and not pool.exhausted):
        return None
    pool.abandon(job)
    if started is None:
        return GrammarTimeoutError(f"{pool.stuck} compiles that were given up still hold every thread",
                                   where="constraint", fix="try again later, or start the engine anew")
    return GrammarTimeoutError(f"compiling took longer than {limit:g} s", where="constraint",
                               fix="simplify it or raise compile_timeout")
