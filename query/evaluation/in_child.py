"""A call in a fresh process. Starts one.

A system's processes are started by fork, and LanceDB, once it is open, does not survive one. So each ingest has a
process of its own, and the one that asks the questions never forks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar

from producers.errors import NotReady, ScopeRecallError
from query.scratch import interrupt_on_sigterm
from workers.supervision.process import describe_exit, die_with_parent

P = ParamSpec("P")
R = TypeVar("R")


def in_child(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """What `function` returns; all of it can be pickled. When this process is interrupted, so is the child, and waited
    for.

    Raises the errors of this project that the function raises, and `NotReady` when its process ends otherwise.
    """
    interrupt_on_sigterm()
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(os.getpid(), sending, function, args, options))
    child.start()
    sending.close()
    try:
        outcome: R | ScopeRecallError = receiving.recv()
    except EOFError:
        child.join()
        raise NotReady(f"the process of {function.__name__} ended: {describe_exit(child.exitcode or 0)}") from None
    except BaseException:
        child.terminate()
        raise
    finally:
        child.join()
        receiving.close()
    if isinstance(outcome, ScopeRecallError):
        raise outcome
    return outcome


def _call(
    parent: int,
    sending: Connection,
    function: Callable[..., object],
    args: tuple[object, ...],
    options: dict[str, object],
) -> None:
    # A Ctrl-C reaches both; only the parent's SIGTERM counts, so that stopping in order is not interrupted once more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt_on_sigterm()
    dies = die_with_parent(parent)
    if dies is not None:  # elsewhere than on Linux there is no such signal
        dies()
    try:
        outcome = function(*args, **options)
    except ScopeRecallError as error:
        outcome = error
    except KeyboardInterrupt:
        return
    sending.send(outcome)
