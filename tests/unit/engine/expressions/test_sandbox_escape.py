"""Ways out of template languages, as they are written against Jinja and Python. None leads anywhere."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dagmaster.engine.expressions.expression import compile_expression
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

SCOPE: dict[str, Any] = {
    "inputs": {"a": 1, "b": "x", "l": [3, 1, 2], "n": None, "f": 1.5, "t": True},
    "nodes": {"y": {"output": {"z": 5, "deep": {"k": [1]}}, "status": "completed"}},
    "item": {"k": [{"items": 3}]},
    "job": {"id": "j-1"},
}

_BASES = [
    "''", "[]", "{}", "()", "1", "true", "none", "inputs", "inputs.a", "inputs.b", "inputs.l", "item",
    "nodes.y.output", "job.id", "self", "request", "config", "cycler", "joiner",
    "namespace", "lipsum", "range", "dict", "url_for",
    "loop", "get_flashed_messages", "context", "g", "__builtins__", "_", "caller", "varargs", "super",
]  # fmt: skip
_ATTRIBUTES = [
    ".__class__", "['__class__']", ".__class__.__mro__[1]", ".__class__.__base__.__subclasses__()",
    ".__init__.__globals__", "['__init__']['__globals__']['os']", "|attr('__class__')", ".format", ".format(inputs)",
    ".__globals__.os.popen('id')",
    "['__cl' + 'ass__']", ".__dict__", ".mro()", "|map(attribute='__class__')", "|map('attr', '__class__')|list", "()",
    ".__getitem__('__class__')", "|format('x')", "|xmlattr", ".\uff3f\uff3fclass\uff3f\uff3f",
]  # fmt: skip
_SINGLE = [
    "cycler.__init__.__globals__.os.popen('id').read()",
    "lipsum.__globals__['os'].system('id')",
    "self._TemplateReference__context.cycler.__init__.__globals__.os",
    "self.__init__.__globals__.__builtins__.__import__('os')",
    "''.__class__.__mro__[1].__subclasses__()[40]('/etc/passwd').read()",
    "'{0.__class__}'.format(inputs)",
    "'{a.__init__.__globals__}'|format(a=inputs)",
    "'%c%c' % (95, 95)",
    "'%s' % inputs",
    "'a' * 999999999",
    "[0] * 999999999",
    "9 ** 9 ** 9",
    "1 << 999",
    "namespace(a=1).a",
    "dict(a=1).items()",
    "range(10**9)|list",
    "inputs|items|list",
    "inputs|dictsort",
    "inputs.l|batch(2)|list",
    "inputs.l|groupby('__class__')",
    "inputs.l|map('upper')|list",
    "inputs.l|select('callable')|list",
    "inputs.l|selectattr('__class__')|list",
    "inputs.l|sum(attribute='__class__')",
    "inputs.l|sum(start=[])",
    "inputs.l|max(attribute='__class__')",
    "inputs.l|join(',', attribute='__class__')",
    "inputs.l|sort(attribute='__class__')",
    "inputs.l|unique(attribute='__class__')",
    "inputs.l|random",
    "inputs.b|pprint",
    "inputs.b|safe",
    "inputs.b|e",
    "inputs.b|urlize",
    "inputs.b|filesizeformat",
    "inputs.b|string.__class__",
    "(inputs.b|string).__class__",
    "(inputs|tojson).__class__",
    "(inputs|first).__class__",
    "inputs is callable",
    "inputs is mapping",
    "inputs is sameas inputs",
    "inputs is filter",
    "1 is divisibleby 1",
    "inputs.__class__ is defined(1)",
    "{% for x in inputs %}{{ x }}{% endfor %}",
    "1 }}{% set x = 1 %}{{ x",
    "1 }}{% import 'os' as os %}{{ os",
    "1 }}{% include '/etc/passwd' %}{{ 1",
    "1 %}{{ 2",
    "{% raw %}{{ x }}{% endraw %}",
    "{# #}1",
    "# for x in y",
    "`id`",
    "lambda: 1",
    "[x for x in inputs.l]",
    "inputs := 1",
    "await inputs",
    "yield",
    "import os",
    "__import__('os')",
    "exec('1')",
    "eval('1')",
    "open('/etc/passwd')",
    "print(inputs)",
    "inputs.__missing__",
    "inputs.get('a')",
    "inputs['get']('a')",
    "inputs.l.append(1)",
    "inputs.l.__add__(inputs.l)",
    "inputs.b.join",
    "inputs.b.encode",
    "inputs.a.real",
    "inputs.a.numerator",
    "inputs.a.bit_length",
    "inputs.f.hex",
    "inputs.t.real",
    "inputs.n.__doc__",
    "1.real",
    "1.0.hex",
    "'a'.upper",
    "[].append",
    "{}.get",
    "{'a': 1}.items",
    "{'a': 1}.keys",
    "'\\x5f\\x5fclass\\x5f\\x5f'.x",
    "inputs['\\x5f\\x5fclass\\x5f\\x5f']",
    "inputs['\\u005f_class__']",
    "inputs['\\137_class__']",
    "inputs['\\N{LOW LINE}_class__']",
    "\uff49nputs.a",
    "inputs\uff0ea",
    "inputs\u200b.a",
    "input\u0455.a",
    "inputs.\U0001d41a\U0001d41b",
    "\x00inputs.a",
    "inputs.a\x00",
    "'a' if inputs",
    "inputs.l[slice(1)]",
    "inputs.l[...]",
    "*inputs.l",
    "**inputs",
    "(inputs.l|sort)(1)",
    "inputs.b|replace",
    "inputs.b|default(*inputs.l)",
    "inputs|attr('get')('a')",
    "inputs|attr('__getitem__')",
]
PAYLOADS = [*_SINGLE, *(base + attribute for base, attribute in product(_BASES, _ATTRIBUTES))]


def test_there_are_enough_payloads():
    assert len(set(PAYLOADS)) >= 300


@pytest.mark.parametrize("text", PAYLOADS)
def test_no_payload_gets_out(text):
    try:
        expression = compile_expression(text, roots=SCOPE.keys())
    except ExpressionInvalid:
        return
    if text in ("[]|map(attribute='__class__')", "()|map(attribute='__class__')"):
        # There is no item whose key could be missing.
        assert expression.evaluate(SCOPE) == []
        return
    with pytest.raises(EvaluationFailed):
        expression.evaluate(SCOPE)
