"""`{% table "servers" %} … {% endtable %}`: it stays a table for screen readers when CSS makes cards of its rows.

A browser takes the meaning from a table whose rows are displayed otherwise, unless the roles say it; they are put in
when a template is compiled. Its values are written the short way: a page has a thousand of them.
"""

import re
from html import escape
from typing import Any

from django import template
from django.template.base import Node, NodeList, Parser, TextNode, Token, VariableNode, render_value_in_context
from django.utils.safestring import SafeString

register = template.Library()

COLUMN = re.compile(r"(<th(?: [^>]*)?>)([^<{]*[^<{\s][^<{]*)(</th>)")
"""A column that is named in words alone: reader.js sorts the rows of a page by it."""
TAG = re.compile(r"<(/?thead|tbody|tr|th|td)\b")
ROLES = {"thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell"}


class TableNode(Node):
    child_nodelists = ("nodelist",)

    def __init__(self, nodelist: NodeList, classes: str) -> None:
        self.nodelist, self.classes = nodelist, classes

    def render(self, context: template.Context) -> str:
        rows = self.nodelist.render(context)
        return f'<div class="scroll"><table class="rows cards{self.classes}" role="table">{rows}</table></div>'


class PlainNode(VariableNode):
    """What is nearly always in a cell, text and whole numbers, is in no language and in no time zone: to look for
    these took the framework more than all else of a page."""

    def render(self, context: template.Context) -> Any:
        value = self.filter_expression.resolve(context)
        kind = type(value)
        if kind is SafeString:
            return value
        if kind is str and context.autoescape:
            return escape(value)
        return str(value) if kind is int else render_value_in_context(value, context)


def write_plainly(nodelist: NodeList) -> None:
    for node in nodelist.get_nodes_by_type(VariableNode):
        node.__class__ = PlainNode


class PlainPartNode(Node):
    child_nodelists = ("nodelist",)

    def __init__(self, nodelist: NodeList) -> None:
        self.nodelist = nodelist

    def render(self, context: template.Context) -> str:
        return self.nodelist.render(context)


@register.tag
def plain(parser: Parser, token: Token) -> PlainPartNode:
    """`{% plain %} … {% endplain %}`: many values that are nearly all text and whole numbers, as in a table."""
    nodelist = parser.parse(("endplain",))
    parser.delete_first_token()
    write_plainly(nodelist)
    return PlainPartNode(nodelist)


@register.tag
def table(parser: Parser, token: Token) -> TableNode:
    """Its rows, with the roles; `th` in the head names a column, below it a row. May be given classes."""
    _, *classes = token.split_contents()
    nodelist = parser.parse(("endtable",))
    parser.delete_first_token()
    add_roles(nodelist)
    write_plainly(nodelist)
    return TableNode(nodelist, "".join(f" {name.strip(chr(34))}" for name in classes))


def add_roles(nodelist: NodeList) -> None:
    """Write the roles into the text of these nodes, in order."""
    is_head = False

    def add_role(match: re.Match[str]) -> str:
        nonlocal is_head
        tag = match[1]
        if tag.endswith("thead"):
            is_head = tag == "thead"
        if tag == "th":
            return '<th role="columnheader" scope="col"' if is_head else '<th role="rowheader" scope="row"'
        return f'<{tag} role="{ROLES[tag]}"' if tag in ROLES else match[0]

    for node in nodelist.get_nodes_by_type(TextNode):
        if isinstance(node, TextNode):
            if "<thead" in node.s or is_head:
                head, end, body = node.s.partition("</thead>")
                node.s = COLUMN.sub(r'\1<button type="button" class="sort">\2</button>\3', head) + end + body
            node.s = TAG.sub(add_role, node.s)
