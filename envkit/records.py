"""`dataclass` for classes that every run defines and few runs make objects of.

The standard library's decorator compiles six functions for each class, 0.4 ms; a command of envkit defines hundreds of
classes, and makes a few objects of some.  Here nothing is compiled but the ``__init__`` of a class that gets many
objects.  They behave as those of `@dataclasses.dataclass(slots=True)`, which mypy takes this for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

_FEW = 20  # objects that are made without a compiled ``__init__``, which takes as long as some 50 of them

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def replace(record: Any, /, **changes: Any) -> Any:
        """As `dataclasses.replace`, six times as fast for a class of this module whose objects check nothing."""
        copied = _copied.get(record.__class__) or _copying(record.__class__)
        if copied is None:
            return dataclasses.replace(record, **changes)
        new = object.__new__(record.__class__)
        setters, values = copied
        for put, value in zip(setters.values(), values(record), strict=True):
            put(new, value)
        for name, value in changes.items():
            if name not in setters:
                raise TypeError(f"{record.__class__.__name__} has no field {name}")
            setters[name](new, value)
        return new

    def dataclass(
        *, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True, repr: bool = True
    ) -> Callable[[type], type]:
        """As `dataclasses.dataclass`, of which this is the part that envkit uses: ``slots`` must be true."""
        assert slots

        def made(cls: type) -> type:
            own = {name for name, value in vars(cls).items() if value is not None}  # None: of `__hash__`, by `__eq__`
            cls.__doc__ = cls.__doc__ or cls.__name__  # or it is asked of inspect.signature, which costs 15 ms at first
            new = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
            for name, method in _methods(new, frozen, eq, repr).items():
                if name not in own:
                    setattr(new, name, method)
            return new

        return made


_copied: dict[type, tuple[dict[str, Callable[[Any, Any], None]], Callable[[Any], Any]]] = {}


def _copying(cls: type) -> tuple[dict[str, Callable[[Any, Any], None]], Callable[[Any], Any]] | None:
    """What sets each field of an object of ``cls``, and what gives their values; None for a class whose ``__init__``
    does more than to set its fields."""
    fields = dataclasses.fields(cls)
    if hasattr(cls, "__post_init__") or not all(field.init for field in fields) or not hasattr(cls, "__slots__"):
        return None
    setters = {field.name: getattr(cls, field.name).__set__ for field in fields}
    copied = _copied[cls] = setters, _values(tuple(setters))
    return copied


def _methods(cls: type, frozen: bool, eq: bool, repr: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    values = _values(tuple(field.name for field in fields if field.compare))
    checked = hasattr(cls, "__post_init__")

    made_so_far = 0

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        nonlocal made_so_far
        made_so_far += 1
        if made_so_far > _FEW or not _filled(self, fields, given, named):
            compiled = _init(cls, frozen)
            cls.__init__ = compiled  # type: ignore[misc]
            compiled(self, *given, **named)
        elif checked:
            self.__post_init__()

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    made: dict[str, Any] = {"__init__": __init__}
    if repr:
        made["__repr__"] = _repr
    if eq:
        made |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
    if frozen:
        made |= {"__setattr__": _set, "__delattr__": _delete, "__getstate__": _state, "__setstate__": _take}
    return made


def _values(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """What gives the values of ``names`` of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _filled(
    self: Any, fields: tuple[dataclasses.Field[Any], ...], given: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Whether the arguments of ``__init__`` are right and its fields are set; a wrong call is the compiled one's to
    refuse."""
    order = [field.name for field in fields if field.init and not field.kw_only]
    values = dict(zip(order, given, strict=False))
    if len(given) > len(order) or not values.keys().isdisjoint(named):
        return False
    values |= named
    for field in fields:
        if field.init and field.name in values:
            value = values.pop(field.name)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            return False
        object.__setattr__(self, field.name, value)
    return not values


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    """The ``__init__`` of ``cls``, as the standard library compiles that of a class with the same fields."""
    fields = [
        (
            one.name,
            object,
            dataclasses.field(
                default=one.default, default_factory=one.default_factory, init=one.init, kw_only=one.kw_only
            ),
        )
        for one in dataclasses.fields(cls)
    ]
    own: dict[str, Any] = {"__doc__": cls.__doc__}
    if hasattr(cls, "__post_init__"):
        own["__post_init__"] = None  # that it is called is all that counts
    twin = dataclasses.make_dataclass(
        cls.__name__, fields, namespace=own, frozen=frozen, slots=True, eq=False, repr=False
    )
    made: Callable[..., None] = vars(twin)["__init__"]
    return made


def _repr(self: Any) -> str:
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _take(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
