"""Signatures of the classes that `continua._values.value` makes: it is `dataclass` under a name."""

from griffe import Class, ExprName, Extension


class Values(Extension):
    def on_class_instance(self, *, cls: Class, **_) -> None:
        for decorator in cls.decorators:
            if str(decorator.value) == "value":
                decorator.value = ExprName("dataclasses.dataclass")
