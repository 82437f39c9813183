//! Every function that the header declares is defined in this crate, with as many parameters, and the other way round.

use std::collections::BTreeMap;
use std::path::Path;

/// Names of functions and the number of their parameters.
type Functions = BTreeMap<String, usize>;

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once("*/").expect("closed comment").1;
    }
    out.push_str(rest);
    out
}

/// Parameters between the parenthesis at the start of `text` and its partner; commas of nested ones do not count.
fn parameters(text: &str) -> usize {
    let (mut depth, mut commas, mut seen) = (0, 0, false);
    for c in text.chars() {
        match c {
            '(' | '<' => depth += 1,
            ')' | '>' => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            ',' if depth == 1 => {
                commas += 1;
                seen = false;
            }
            c if !c.is_whitespace() => seen = true,
            _ => {}
        }
    }
    commas + usize::from(seen)
}

fn functions(text: &str, marker: impl Fn(&str) -> bool) -> Functions {
    let mut found = Functions::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("myriad_") {
        let at = from + at;
        let name_len = text[at..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(0);
        let name = &text[at..at + name_len];
        from = at + name_len.max(1);
        if text[from..].starts_with('(') && marker(&text[..at]) {
            found.insert(name.to_string(), parameters(&text[from..]));
        }
    }
    found
}

#[test]
fn header_and_crate_agree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("../../handler/myriad_capi.h")).expect("header");
    let header = without_comments(&header).replace("(void)", "()");
    // A declaration's name stands outside of any parentheses and braces.
    let declared = functions(&header, |before| {
        let depth = |open, close| before.matches(open).count() - before.matches(close).count();
        depth('(', ')') == 0 && depth('{', '}') <= 1
    });
    let mut defined = Functions::new();
    for entry in std::fs::read_dir(root.join("src")).expect("sources") {
        let text = std::fs::read_to_string(entry.expect("entry").path()).expect("source");
        defined.extend(functions(&text.replace("->", ""), |before| before.ends_with("extern \"C\" fn ")));
    }
    assert!(declared.len() > 70, "found only {} declarations", declared.len());
    assert_eq!(declared, defined);
}
