"""A mapping that never changes, so that what holds it hashes, compares, pickles and copies."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed; it hashes if its values do."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "a description cannot be changed: make another one with dataclasses.replace"
        )

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = (
        setdefault
    ) = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)


EMPTY: FrozenDict[str, Any] = FrozenDict()
