"""Documents and pages for tests, and a reader of pages that shares no code with what writes them."""

from __future__ import annotations

import json
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "hr", "img"}


class Node:
    """An element with its attributes, and its texts and elements in order."""

    def __init__(self, name, attributes, parent=None):
        self.name, self.attributes, self.parent, self.children = name, dict(attributes), parent, []

    def __getitem__(self, name):
        return self.attributes[name]

    def get(self, name, default=None):
        return self.attributes.get(name, default)

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, name=None, **wanted):
        """Iterate over the elements below of that name; ``class_`` is one of its classes."""
        for child in self.children:
            if isinstance(child, Node):
                if (name is None or child.name == name) and child.has(**wanted):
                    yield child
                yield from child.all(name, **wanted)

    def has(self, class_=None, **wanted):
        if class_ is not None and class_ not in (self.get("class") or "").split():
            return False
        return all(self.get(name) == value for name, value in wanted.items())

    def one(self, name=None, **wanted):
        found = list(self.all(name, **wanted))
        assert len(found) == 1, f"{len(found)} of {name} {wanted}"
        return found[0]


class Reader(HTMLParser):
    """Builds the tree, and fails where an element is not closed as it was opened."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = self.at = Node("root", {})

    def handle_starttag(self, name, attributes):
        assert len({key for key, _ in attributes}) == len(attributes), f"{name}: an attribute twice"
        node = Node(name, attributes, self.at)
        self.at.children.append(node)
        if name not in VOID:
            self.at = node

    def handle_startendtag(self, name, attributes):
        self.at.children.append(Node(name, attributes, self.at))

    def handle_endtag(self, name):
        assert self.at.name == name, f"</{name}> closes <{self.at.name}>"
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.children.append(data)


def read_page(text):
    """Return the tree of a page."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.at is reader.root
    return reader.root


def data_of(tree):
    """Return the document that stands in a page."""
    return json.loads(tree.one("script", id="data").text)


def rows_of(tree, table):
    """Return a table's rows as lists of pairs: exact value or None, and text."""
    body = tree.one("table", id=table).one("tbody")
    return [[(cell.get("data-value"), cell.text) for cell in row.all("td")] for row in body.all("tr")]
