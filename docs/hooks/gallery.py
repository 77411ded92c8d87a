"""The notebooks of `examples/` as pages, with the outputs that they were saved with.

`extra.gallery` in mkdocs.yml names the notebooks in order, with a line for each. A page is made of
every one that exists, and the line `<!-- gallery -->` of a page becomes their pictures.
"""

import base64
import json
from pathlib import Path

from mkdocs.structure.files import File

FOLDER = Path(__file__).parents[2] / "examples"
PLACE = "<!-- gallery -->"
CARD = """
-   [![{title}](examples/{name}-0.png)](examples/{name}.md)

    **[{title}](examples/{name}.md)**

    {line}
"""


def notebooks(config):
    """The cells of each notebook by name, in the order of the gallery."""
    return {
        name: json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
        for name in config.extra["gallery"]
        if (FOLDER / f"{name}.ipynb").exists()
    }


def title(cells):
    return cells[0]["source"][0].removeprefix("# ").strip()


def page(name, cells):
    """A notebook in Markdown, and its pictures."""
    text, pictures = [], []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text.append(source.replace("](../docs/", "](../"))
            continue
        text.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                text.append(f"![]({name}-{len(pictures)}.png)")
                pictures.append(base64.b64decode("".join(data["image/png"])))
            elif "text/html" in data:
                text.append("".join(data["text/html"]))
            elif said := output.get("text") or data.get("text/plain"):
                text.append(f"```text\n{''.join(said).rstrip()}\n```")
    text.append(f"*This page is `examples/{name}.ipynb`.*")
    return "\n\n".join(text), pictures


def on_config(config):
    found = [{title(cells): f"examples/{name}.md"} for name, cells in notebooks(config).items()]
    config.nav.insert(1, {"Gallery": found})
    config.watch.append(str(FOLDER))
    return config


def on_files(files, config):
    for name, cells in notebooks(config).items():
        text, pictures = page(name, cells)
        files.append(File.generated(config, f"examples/{name}.md", content=text))
        for i, picture in enumerate(pictures):
            files.append(File.generated(config, f"examples/{name}-{i}.png", content=picture))
    return files


def on_page_markdown(markdown, config, **_):
    if PLACE not in markdown:
        return markdown
    cards = [
        CARD.format(title=title(cells), name=name, line=config.extra["gallery"][name])
        for name, cells in notebooks(config).items()
    ]
    grid = f'<div class="grid cards" markdown>\n\n{"".join(cards)}\n</div>'
    return markdown.replace(PLACE, grid)
