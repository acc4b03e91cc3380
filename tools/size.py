"""Print how large a package is: files, lines, lines of code, public names.

    python tools/size.py src/privypurse lab/src/privypurse_lab
    python tools/size.py src/privypurse --rooms              # each sub-package by itself
    python tools/size.py src/privypurse sklearn dp_accounting # installed packages, side by side

Lines of code are lines without blanks, comments and docstrings. The public names of a module are
its `__all__`, or else the functions and classes it defines. Names and modules that begin with an
underscore are private.
"""

import argparse
import ast
import importlib.util
import pathlib
import tokenize

NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def code_lines(path: pathlib.Path, tree: ast.Module) -> int:
    """Count the lines that hold code."""
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in NOT_CODE]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1) if token.string}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def public_names(path: pathlib.Path, root: pathlib.Path, tree: ast.Module) -> set[str]:
    """Return the public names that a module offers."""
    parts = path.relative_to(root).with_suffix("").parts
    if any(part.startswith("_") and part != "__init__" for part in parts):
        return set()
    for node in tree.body:
        is_all = isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets)
        if is_all and isinstance(node.value, ast.List | ast.Tuple):
            return {name for name in ast.literal_eval(node.value) if not name.startswith("_")}
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, defined) and not node.name.startswith("_")}


def measure(root: pathlib.Path) -> tuple[int, int, int, int]:
    """Return files, lines, lines of code and public names below a folder."""
    files = sorted(path for path in root.rglob("*.py") if "tests" not in path.relative_to(root).parts)
    lines = code = 0
    names: set[str] = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines, code = lines + len(text.splitlines()), code + code_lines(path, tree)
        names |= public_names(path, root, tree)
    return len(files), lines, code, len(names)


def main() -> None:
    """Print one line for each package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="folders, or names of installed packages")
    parser.add_argument("--rooms", action="store_true", help="each sub-package by itself")
    arguments = parser.parse_args()
    print("| package | files | lines | lines of code | public names |\n|---|---|---|---|---|")
    for package in arguments.packages:
        root = pathlib.Path(package)
        if not root.is_dir():
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                parser.error(f"{package} is neither a folder nor an installed package.")
            root = pathlib.Path(spec.origin).parent
        rooms = sorted(path.parent for path in root.glob("*/__init__.py")) if arguments.rooms else []
        for folder in [*rooms, root]:
            print(f"| {folder.name} |" + "|".join(f" {number:,} " for number in measure(folder)) + "|")


if __name__ == "__main__":
    main()
