"""Two things that docstrings write and Markdown does not know: formulas and doctests.

A formula is ``.. math::`` or ``:math:`...```, on a page also ``$$...$$``. It becomes MathML when
the site is built, so that a page needs no script to show it. A doctest becomes a code
block; Markdown alone would read its ``>>>`` as quotations.
"""

import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

# The formula follows on the same line, or indented below it, or both.
BLOCK = re.compile(r"^\.\. math::[ ]*(.*(?:\n(?:[ \t]*\n)*[ ]{2,}.*)*)", re.MULTILINE)
DOLLARS = re.compile(r"^\$\$(.+?)\$\$$", re.MULTILINE | re.DOTALL)
INLINE = r"(?<!`):math:`([^`]+)`"


class Doctests(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        out, fenced, doctest = [], False, False
        for line in lines:
            if line.startswith(("```", "~~~")):
                fenced = not fenced
            if line.startswith(">>> ") and not fenced and not doctest:
                out.append("```pycon")
                doctest = True
            if doctest and not line.strip():
                out.append("```")
                doctest = False
            out.append(line)
        return [*out, "```"] if doctest else out


class Displayed(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        def stash(match: re.Match[str]) -> str:
            html = convert(match[1].strip(), display="block")
            return f"\n{self.md.htmlStash.store(html)}\n"

        return DOLLARS.sub(stash, BLOCK.sub(stash, "\n".join(lines))).split("\n")


class Inline(InlineProcessor):
    def handleMatch(self, match, data):  # noqa: N802 (the name is Python-Markdown's)
        return self.md.htmlStash.store(convert(match[1])), match.start(0), match.end(0)


class Docstrings(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # Fenced code is taken out at 25. Doctests join it; formulas leave it as it is written.
        md.preprocessors.register(Doctests(md), "doctests", 27)
        md.preprocessors.register(Displayed(md), "math-displayed", 22)
        # Before inline code (190), which would take the backticks.
        md.inlinePatterns.register(Inline(INLINE, md), "math-inline", 195)


def on_config(config):
    # In place: mkdocstrings reads the same list for docstrings.
    config.markdown_extensions.append(Docstrings())
    return config
