#!/usr/bin/python3
"""Checks that docs/variables.md names every system variable, status variable and INFORMATION_SCHEMA table of the plugin,
docs/format.md every operation code of the log and every index of the catalog, and docs/recovery.md every text of the error log;
and that links between pages lead somewhere."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def text(path):
    return (ROOT / path).read_text()


def found(pattern, path, minimum):
    """All matches of a pattern that must not have stopped to match."""
    names = re.findall(pattern, text(path))
    if len(names) < minimum:
        sys.exit(f"{path}: found {len(names)} of at least {minimum} names; has its form changed?")
    return names


def headings(page):
    """The anchors that a page's headings have, as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", page, re.M)}


def broken_links():
    """Links to files, or to headings of pages, that are not there."""
    pages = [path for folder in (".", "docs", "docs/decisions", "tests", "bench") for path in sorted((ROOT / folder).glob("*.md"))]
    for path in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", path.read_text(), flags=re.S)):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists() or anchor and anchor not in headings(target.read_text()):
                yield f"{path.relative_to(ROOT)}: the link {link} leads nowhere"


STRING = r'"(?:\\.|[^"\\])*"'


def error_log_texts():
    """What engine and plugin write to the error log: where, and the first part of some length that is always the same."""
    written = []
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        code = re.sub(r"\\\n\s*", "", path.read_text())
        for call in re.finditer(rf"(?<!\|text\| )\breport(?:er)?\)?\(\s*Level::\w+,\s*&?(?:format!\(\s*)?({STRING}|text\b(?!\())", code):
            # The text may have been put together before.
            made = re.findall(rf"let text =\s*(?:&?format!\(\s*)?({STRING})", code[:call.start()])
            written.append((path, made[-1] if call[1] == "text" else call[1]))
        written += [(path, told) for told in re.findall(rf"report_rarely\([^|]*\|\|[\s{{]*format!\(\s*({STRING})", code)]
    for path in sorted((ROOT / "handler").glob("*.*")):
        calls = re.findall(rf"sql_print_\w+\(\s*((?:{STRING}\s*)+)", path.read_text())
        written += [(path, re.sub(r'"\s*"', "", call).replace("MYRIAD: ", "")) for call in calls]
    if len(written) < 80:
        sys.exit(f"found {len(written)} texts of the error log; has the form of reports changed?")
    for path, told in written:
        parts = [part.strip() for part in re.split(r'\{.*?\}|%\w+|\\n|[:;,.()"]', told)]
        yield path.relative_to(ROOT), next((part for part in parts if len(part) > 8), max(parts, key=len))


def main():
    page = text("docs/variables.md")
    words = {f"`myriad_{name}`" for name in found(r"MYSQL_(?:SYSVAR|THDVAR)_\w+\((\w+),", "handler/variables.cc", 10)}
    body = text("crates/engine/src/status.rs").split("pub fn metrics")[1].split("\n    }\n")[0]
    metrics = re.findall(r'\("([a-z_]+)",', body)
    if len(metrics) < 10:
        sys.exit("crates/engine/src/status.rs: the counters are not where they were")
    words |= {f"`Myriad_{name}`" for name in metrics}
    words |= {f"`{name}`" for name in found(r'\{"(MYRIAD_\w+)", init', "handler/i_s.cc", 5)}
    words |= {f"`{name}`" for name in found(r'Show::Column\("(\w+)"', "handler/i_s.cc", 20)}
    missing = [f"docs/variables.md does not name {word}" for word in sorted(words) if word not in page]

    page = text("docs/format.md")
    ops = found(r"pub const ([A-Z_]+): u8 = (\d+);", "crates/btree/src/redo.rs", 10)
    ops += found(r"pub const OP_([A-Z_]+): u8 = (\d+);", "crates/txn/src/undo/page.rs", 5)
    ops += found(r"pub\(crate\) const OP_([A-Z_]+): u8 = (\d+);", "crates/buffer/src/ops.rs", 4)
    missing += [f"docs/format.md has no operation {number} {name}" for name, number in ops
                if not re.search(rf"^\| {number} \| {name} \|", page, re.M)]
    catalog = page.split("### Catalog")[1].split("\n## ")[0]
    missing += [f"docs/format.md has no index {number} in the catalog"
                for number in found(r"IndexId = IndexId\((\d+)\)", "crates/catalog/src/rows.rs", 7)
                if f"\n| {number} | " not in catalog]
    page = text("docs/recovery.md").split("## What the error log says")[1].split("\n## ")[0]
    missing += [f"docs/recovery.md does not have what {path} tells the error log: {told}"
                for path, told in error_log_texts() if told not in page]
    missing += broken_links()
    print("\n".join(missing))
    sys.exit(1 if missing else 0)


main()
