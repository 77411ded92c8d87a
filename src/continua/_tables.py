"""Tables of a few lines, as text, in Markdown and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["html_table", "markdown_table", "shape_of", "text_table"]

Rows = Sequence[Sequence[str]]
#: rows that a notebook shows before it only counts the rest
MOST = 40


def text_table(rows: Rows) -> str:
    """Columns padded to equal width: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Rows) -> str:
    """The same in Markdown, a head first."""
    head, *body = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
    rule = "|" + "---|" * len(rows[0])
    return "\n".join([head, rule, *body])


def html_table(rows: Rows, caption: str = "", notes: Sequence[str] = ()) -> str:
    """The same for a notebook: a head, rows, of which a long table shows the first, and notes."""
    head, *body = rows
    lines = ["<table>", f"<caption>{_escaped(caption)}</caption>" if caption else ""]
    lines.append(f"<tr>{''.join(f'<th>{_escaped(cell)}</th>' for cell in head)}</tr>")
    lines += [f"<tr>{''.join(f'<td>{_escaped(c)}</td>' for c in row)}</tr>" for row in body[:MOST]]
    if len(body) > MOST:
        lines.append(f"<tr><td colspan={len(head)}>and {len(body) - MOST} more</td></tr>")
    lines += [f"<tr><td colspan={len(head)}>{_escaped(note)}</td></tr>" for note in notes]
    return "\n".join([*filter(None, lines), "</table>"])


def shape_of(state: Any) -> str:
    """The dtype and shape of a tensor, or of each in a tuple or dictionary."""
    if isinstance(state, dict):
        return "{" + ", ".join(f"{key}: {shape_of(value)}" for key, value in state.items()) + "}"
    if isinstance(state, list | tuple):
        return "(" + ", ".join(map(shape_of, state)) + ")"
    if hasattr(state, "shape") and hasattr(state, "dtype"):
        return f"{str(state.dtype).removeprefix('torch.')}{list(state.shape)}"
    return repr(state)


def _escaped(text: str) -> str:
    # Not html.escape, whose module takes longer to import than the rest of this room.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
