"""Row 35: a build that fails in the pool is never reported, and who waits for it waits on."""

from __future__ import annotations

import contextlib
from concurrent.futures import wait

from shared_runtime.constrain.compiling.compile_pool import CompileJob, CompilePool
from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageOptions
from stages.stage4_backends import grammar_queue
from tests.conformance.harness import Ask
from tests.museum.bench import PATIENCE_S, Bench, hold
from tests.museum.exhibit import Exhibit, Injection

Pool = CompilePool[object]


class ReportsSuccess(CompilePool[object]):
    """Specimen of `CompilePool`: the result is set behind the build, and only there."""

    def _work(self, job: CompileJob[object]) -> None:
        with contextlib.suppress(Exception):
            job.future.set_result(job.build())
        with self._lock:
            self._running.discard(job)
            self._start_threads()


def a_failed_build_is_over(pool_class: type[Pool], bench: Bench) -> None:
    """Two builds that raise, then one that does not."""

    def fails() -> object:
        raise ValueError("undefined rule")

    pool = pool_class(workers=1)
    jobs = [pool.submit(fails), pool.submit(fails), pool.submit(lambda: "a grammar")]
    wait([jobs[-1].future], PATIENCE_S)
    done = [job.future.done() for job in jobs]
    hold(all(done), f"{done.count(False)} builds that failed are still waited for")
    hold(isinstance(jobs[0].future.exception(), ValueError), "the error was lost")


def scenario(bench: Bench) -> None:
    """A bad regex, twice, without jump-forward."""
    engine = bench.engine(4, options=StageOptions(jump_forward=False))
    bench.run(engine, [Ask("x", Constraint.regex("("))] * 2)


EXHIBIT: Exhibit[type[Pool]] = Exhibit(
    35, ReportsSuccess, {"runtime": CompilePool}, a_failed_build_is_over, "2 builds that failed are still waited for",
    Injection(grammar_queue, "CompilePool", ReportsSuccess, scenario, "2 of 2 requests did not end"))
