"""Transactions of the control plane's database. Django's `transaction` belongs to `default`."""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar, overload

from django.db import transaction
from django.db.transaction import Atomic

from controlplane.core.database import ALIAS

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

on_commit = partial(transaction.on_commit, using=ALIAS)
set_rollback = partial(transaction.set_rollback, using=ALIAS)


@overload
def atomic(call: Callable[Parameters, Result], /) -> Callable[Parameters, Result]: ...
@overload
def atomic(*, savepoint: bool = True) -> Atomic: ...
def atomic(
    call: Callable[Parameters, Result] | None = None, /, *, savepoint: bool = True
) -> Callable[Parameters, Result] | Atomic:
    return transaction.atomic(ALIAS, savepoint)(call) if call else transaction.atomic(ALIAS, savepoint)
