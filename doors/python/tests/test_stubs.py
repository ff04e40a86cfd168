"""The stubs name what the compiled module has, with its signatures."""

import ast
import inspect
import os

from towpath import _towpath

STUBS = os.path.join(os.path.dirname(_towpath.__file__), "_towpath.pyi")


def parameters(function):
    arguments = function.args
    found = [each.arg for each in arguments.posonlyargs + arguments.args if each.arg not in ("self", "cls")]
    return found + [each.arg for each in arguments.kwonlyargs]


def test_stubs_have_all_public_names_and_signatures():
    with open(STUBS) as text:
        tree = ast.parse(text.read())
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    functions = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    public = {name for name in dir(_towpath) if not name.startswith("__")}
    assert public <= set(classes) | functions, public - set(classes) - functions
    for name, stub in classes.items():
        for each in stub.body:
            # Otherwise an instance of a class of the package is one of its base to a type checker.
            assert getattr(each, "name", "") != "__new__" or ast.unparse(each.returns) == "Self"
        if not hasattr(_towpath, name):
            continue
        real = getattr(_towpath, name)
        bases = [classes[base.id] for base in stub.bases if base.id in classes]
        methods = {each.name: each for base in [*bases, stub] for each in base.body if hasattr(each, "args")}
        for method in vars(real):
            if not method.startswith("_"):
                assert method in methods, f"{name}.{method} is not in the stubs"
        for method, described in methods.items():
            if method == "__buffer__":
                continue
            assert hasattr(real, method), f"{name} has no {method}"
            text = getattr(getattr(real, method), "__text_signature__", None)
            if text and not method.startswith("__"):
                known = [each for each in inspect.signature(getattr(real, method)).parameters if each != "self"]
                assert known == parameters(described), f"{name}.{method}"
