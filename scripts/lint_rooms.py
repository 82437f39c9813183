#!/usr/bin/python3
"""Checks that each room uses only rooms above it and that all licences go with GPL-2.0; --sizes lists what has grown."""
import json
import re
import subprocess
import sys

ORDER = ["base", "io", "space", "log", "buffer", "btree", "txn", "catalog", "engine", "capi", "cli"]
LINES_MAX, FUNCTION_MAX = 1000, 100
# A licence expression passes if one of its alternatives is in here. Apache-2.0 alone is not compatible with GPL-2.0.
FREE = {"MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "0BSD", "Unlicense", "CC0-1.0", "BSL-1.0",
        "GPL-2.0-or-later", "GPL-2.0-only", "LGPL-2.1-or-later", "Unicode-3.0", "Unicode-DFS-2016",
        "Apache-2.0 WITH LLVM-exception"}


def allowed(expression):
    expression = expression.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ")
    words = re.sub(r"Apache-2.0 WITH LLVM-exception", "Apache-2.0-LLVM", expression).split()
    python = " ".join({"OR": "or", "AND": "and", "(": "(", ")": ")"}.get(
        w, str(w.replace("Apache-2.0-LLVM", "Apache-2.0 WITH LLVM-exception") in FREE)) for w in words)
    return eval(python, {"__builtins__": {}})       # only True, False, and, or and brackets are left


def metadata():
    return json.loads(subprocess.run(["cargo", "metadata", "--format-version=1"], capture_output=True, text=True,
                                     check=True).stdout)


def reachable(data):
    """Names of packages that a build (not its tests) contains."""
    nodes = {n["id"]: n for n in data["resolve"]["nodes"]}
    todo, seen = list(data["workspace_members"]), set()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += [d["pkg"] for d in nodes[one]["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
    return seen


def rooms_and_licences():
    data, problems = metadata(), []
    members = {p["name"]: p["manifest_path"].split("/")[-2] for p in data["packages"] if p["source"] is None}
    inside = reachable(data)
    for package in data["packages"]:
        if package["source"] is None:
            room = members[package["name"]]
            for dependency in package["dependencies"]:
                used = members.get(dependency["name"])
                if used and dependency["kind"] is None and room in ORDER and used in ORDER \
                        and ORDER.index(used) >= ORDER.index(room):
                    problems.append(f"room {room} uses {used}, which is not above it")
        elif package["id"] in inside and not allowed(package["license"] or "none"):
            problems.append(f"crate {package['name']}: licence {package['license']} does not go with GPL-2.0")
    return problems


def sizes():
    files = subprocess.run(["git", "ls-files", "*.rs", "*.cc", "*.h", "*.py"], capture_output=True, text=True).stdout
    for path in files.split():
        try:
            with open(path) as f:
                lines = f.read().splitlines()
        except OSError:
            continue
        if len(lines) > LINES_MAX:
            print(f"long file: {path}: {len(lines)} lines")
        start = None
        for number, line in enumerate(lines):
            if path.endswith(".rs") and re.match(r"\s*(pub(\(.*?\))? )?(unsafe )?(const )?fn \w+", line):
                start, indent = number, len(line) - len(line.lstrip())
            elif start is not None and line == " " * indent + "}":
                if number - start > FUNCTION_MAX:
                    print(f"long function: {path}:{start + 1}: {number - start} lines")
                start = None


if __name__ == "__main__":
    if sys.argv[1:] == ["--sizes"]:
        sizes()
    else:
        found = rooms_and_licences()
        print("\n".join(found))
        sys.exit(1 if found else 0)
