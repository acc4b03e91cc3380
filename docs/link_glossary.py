"""Link the first use of each term of the glossary, in the pages given or in all of docs/ and docs/howto/.

Run from the root of the repository: ``python docs/link_glossary.py``. `tests/test_documents.py`
fails for a page with a first use that has no link.
"""

import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).parent
GLOSSARY = DOCS / "glossary.md"
# What is not prose: fences, comments, listings, headings, code, links to elsewhere, definitions of links,
# and emphasis, which may be the title of a paper.
NOT_PROSE = re.compile(
    r"^```.*?^```|<!--.*?-->|^    [^\n]*|^#[^\n]*|`+(?:[^`\n]|\n(?!\n))+`+|!?\[[^\]]*\]\([^)]*\)|^\[[^\]]+\]:[^\n]*|"
    r"(?<![*\w])\*(?![*\s])(?:[^*\n]|\n(?!\n))+\*(?!\*)",
    re.MULTILINE | re.DOTALL,
)


def pages() -> list[pathlib.Path]:
    """Return the pages that must link to the glossary."""
    return sorted({*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")} - {GLOSSARY})


def terms() -> list[str]:
    """Return the terms: the second headings of the glossary, in small letters."""
    return [name.lower() for name in re.findall(r"^## (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)]


def unlinked(text: str) -> dict[str, re.Match[str]]:
    """Return the terms whose first use in the prose of a page has no link, with that use."""
    prose = NOT_PROSE.sub(lambda part: re.sub(r"[^\n]", "\0", part[0]), text)
    found = {}
    for term in terms():
        words = r"\s+".join(term.split())
        first = re.search(rf"(?<![\w^-]){words}s?(?![\w-])", prose, re.IGNORECASE)
        if first and not (prose[first.start() - 1] == "[" and f"\n[{term}]: " in text):
            found[term] = first
    return found


def linked(text: str, glossary: str) -> str:
    """Return a page with the missing links, `glossary` being the path from it."""
    missing = unlinked(text)
    for term, use in sorted(missing.items(), key=lambda item: -item[1].start()):
        label = "" if " ".join(use[0].lower().split()) == term else f"[{term}]"
        text = f"{text[: use.start()]}[{use[0]}]{label}{text[use.end() :]}"
    new = [f"[{term}]: {glossary}#{term.replace(' ', '-')}\n" for term in missing if f"\n[{term}]: " not in text]
    gap = "" if not new or re.search(r"^\[[^\]]+\]: \S+\n\Z", text, re.MULTILINE) else "\n"
    return text + gap + "".join(new)


def main() -> None:
    """Add the links."""
    for page in [pathlib.Path(name).resolve() for name in sys.argv[1:]] or pages():
        page.write_text(linked(page.read_text(encoding="utf-8"), f"{'../' * (page.parent != DOCS)}glossary.md"))


if __name__ == "__main__":
    main()
