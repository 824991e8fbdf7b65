//! A hook's text, and the form in which it can be instantiated anew for every call.
//!
//! A module is evaluated once and keeps its variables, and a hook must keep none from call to call. So where it can
//! be done, `export default X` becomes an assignment inside a function, and that function is called for every call:
//! new variables each time, for a microsecond. A file with imports cannot be treated so; it gets a new context for
//! every call, which is slower.
//!
//! The scan below need not be right about every corner of the language. What it makes must compile and export the
//! same events, or the file is run as the module it is.

/// A file larger than this is not a hook.
pub(crate) const LARGEST: u64 = 1 << 20;

const EXPORT: &str = "export default";
/// As long as what it replaces, so that columns stay.
const ASSIGN: &str = "callsign$x   =";

/// The text as an expression whose value is a function that returns the default export; None: it must be a module.
pub(crate) fn as_function(text: &str) -> Option<String> {
    // A comment in a script, and not in a module.
    if text.contains("<!--") || text.contains("-->") {
        return None;
    }
    let (mut export, mut is_async) = (None, false);
    for word in Words::new(text) {
        match word.text {
            "import" => return None,
            "async" => is_async = true,
            // Not in an async function, so it is the module that waits.
            "await" if !is_async => return None,
            "export" if word.depth == 0 && export.is_none() => export = Some(word.at),
            "export" | "await" if word.depth == 0 => return None,
            _ => {}
        }
    }
    let at = export?;
    let rest = text[at..].strip_prefix(EXPORT)?;
    // A named function or class would have to be bound to its name as well.
    let next = Words::new(rest).next().filter(|word| rest[..word.at].trim().is_empty());
    if next.is_some_and(|word| matches!(word.text, "function" | "class" | "async")) {
        return None;
    }
    let before = &text[..at];
    Some(format!(
        "(function () {{ \"use strict\"; let callsign$x; {before}{ASSIGN}{rest}\n; return callsign$x }})"
    ))
}

/// Whether the text may use `globalThis.state`. Too often yes costs only that such a file runs one call at a time.
pub(crate) fn uses_state(text: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '$');
    text.match_indices("state").any(|(at, found)| {
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + found.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

struct Word<'a> {
    text: &'a str,
    at: usize,
    /// How many brackets it lies in.
    depth: usize,
}

/// The words of a script that are not in strings, templates, comments or regular expressions.
struct Words<'a> {
    text: &'a str,
    at: usize,
    /// For each open bracket, whether it is the `${` of a template.
    open: Vec<bool>,
    /// Whether a `/` here would begin a regular expression.
    expects_value: bool,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, open: Vec::new(), expects_value: true }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips to behind the next `end` that no backslash precedes, or to the end of the text.
    fn skip_quoted(&mut self, end: char) {
        let mut escaped = false;
        for (at, character) in self.rest().char_indices().skip(1) {
            if !escaped && character == end {
                self.at += at + end.len_utf8();
                return;
            }
            escaped = !escaped && character == '\\';
        }
        self.at = self.text.len();
    }

    fn skip_expression(&mut self) {
        let (mut escaped, mut in_class) = (false, false);
        for (at, character) in self.rest().char_indices().skip(1) {
            match character {
                '\n' => return self.at += at,
                '[' if !escaped => in_class = true,
                ']' if !escaped => in_class = false,
                '/' if !escaped && !in_class => return self.at += at + 1,
                _ => {}
            }
            escaped = !escaped && character == '\\';
        }
        self.at = self.text.len();
    }

    /// Skips the text of a template to its end, or to a `${`.
    fn skip_template(&mut self) {
        let mut escaped = false;
        let mut characters = self.rest().char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '`' if !escaped => return self.at += at + 1,
                '$' if !escaped && characters.peek().is_some_and(|(_, next)| *next == '{') => {
                    self.open.push(true);
                    return self.at += at + 2;
                }
                _ => escaped = !escaped && character == '\\',
            }
        }
        self.at = self.text.len();
    }

    fn skip_to(&mut self, end: &str) {
        self.at = self.rest().find(end).map_or(self.text.len(), |found| self.at + found + end.len());
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        loop {
            let rest = self.rest();
            let first = rest.chars().next()?;
            match first {
                _ if rest.starts_with("//") => self.skip_to("\n"),
                _ if rest.starts_with("/*") => self.skip_to("*/"),
                '"' | '\'' => {
                    self.skip_quoted(first);
                    self.expects_value = false;
                }
                '`' => {
                    self.at += 1;
                    self.skip_template();
                    self.expects_value = self.open.last() == Some(&true);
                }
                '/' if self.expects_value => {
                    self.skip_expression();
                    self.expects_value = false;
                }
                '{' | '(' | '[' => {
                    self.open.push(false);
                    self.at += 1;
                    self.expects_value = true;
                }
                '}' if self.open.last() == Some(&true) => {
                    self.open.pop();
                    self.at += 1;
                    self.skip_template();
                    self.expects_value = self.open.last() == Some(&true);
                }
                '}' | ')' | ']' => {
                    self.open.pop();
                    self.at += 1;
                    self.expects_value = first == '}';
                }
                _ if first.is_alphanumeric() || matches!(first, '_' | '$') => {
                    let is_part = |character: char| character.is_alphanumeric() || "_$".contains(character);
                    let length = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
                    let word = Word { text: &rest[..length], at: self.at, depth: self.open.len() };
                    self.at += length;
                    self.expects_value = matches!(
                        word.text,
                        "return"
                            | "typeof"
                            | "case"
                            | "in"
                            | "of"
                            | "new"
                            | "delete"
                            | "void"
                            | "throw"
                            | "await"
                    );
                    return Some(word);
                }
                _ => {
                    self.at += first.len_utf8();
                    self.expects_value =
                        self.expects_value && first.is_whitespace() || !first.is_whitespace();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(&str, usize)> {
        Words::new(text).map(|word| (word.text, word.depth)).collect()
    }

    #[test]
    fn what_is_quoted_is_no_word() {
        let text = "a 'b' \"c\\\"d\" /* e */ // f\n `g ${h + `i ${j}`} k` l /m[/]n/ / o";
        let found: Vec<&str> = words(text).into_iter().map(|(word, _)| word).collect();
        // After a word a slash divides, so this is no expression; what it does to the rest is as it may be.
        assert_eq!(found[..5], ["a", "h", "j", "l", "m"]);
        let found = words("x = /e\\/[/]export/; y({ z })");
        assert_eq!(found, [("x", 0), ("y", 0), ("z", 2)]);
    }

    #[test]
    fn a_plain_module_becomes_a_function_of_the_same_length() {
        let text = "const a = 1\nexport default { b: a }\n";
        let made = as_function(text).unwrap();
        assert!(made.contains("const a = 1\ncallsign$x   = { b: a }\n"), "{made}");
        assert_eq!(EXPORT.len(), ASSIGN.len());
    }

    #[test]
    fn what_cannot_be_a_function_stays_a_module() {
        for text in [
            "import { x } from './x.js'\nexport default {}",
            "export const a = 1\nexport default {}",
            "const x = await 1\nexport default {}",
            "export default function before() {}",
            "export default class {}",
            "const x = { y: () => import('./y.js') }\nexport default x",
            "module.exports = {}",
            "// export default {}",
            "export  default {}",
            "let m; try { m = await (1) } catch {}\nexport default { x: async () => {} }",
            "const n = 1\nconst y = n<!--n\nexport default {}",
        ] {
            assert!(as_function(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_file_that_may_use_state_is_known() {
        assert!(uses_state("globalThis.state.x = 1"));
        assert!(uses_state("state ??= {}"));
        assert!(!uses_state("const stateful = restate + _state"));
    }
}
