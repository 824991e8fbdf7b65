//! What is new at the end of a file of which only the end is seen.

/// The lines that were seen last.
#[derive(Debug, Default)]
pub(super) struct News {
    seen: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fresh {
    pub(super) lines: Vec<String>,
    /// There may be lines between what was seen and these.
    pub(super) has_gap: bool,
}

impl News {
    /// From here on this was seen. Returned are its lines.
    pub(super) fn begin(&mut self, text: &str) -> &[String] {
        self.seen = text.lines().map(str::to_owned).collect();
        &self.seen
    }

    /// What stands behind what was seen: the most that can be the end of the one and the beginning of the other.
    pub(super) fn since(&self, text: &str) -> Fresh {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let most = self.seen.len().min(lines.len());
        let common =
            (0..=most).rev().find(|common| self.seen[self.seen.len() - common..] == lines[..*common]);
        let common = common.unwrap_or_default();
        // A longer end begins before what was seen, and has that in its middle.
        if common == 0
            && !self.seen.is_empty()
            && let Some(at) = lines.windows(self.seen.len()).rposition(|window| window == self.seen)
        {
            return Fresh { lines: lines[at + self.seen.len()..].to_vec(), has_gap: false };
        }
        Fresh { has_gap: common == 0 && !self.seen.is_empty(), lines: lines[common..].to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seen: &str, text: &str, expected: &[&str], has_gap: bool) {
        let lines = expected.iter().map(|&line| line.to_owned()).collect();
        let mut news = News::default();
        news.begin(seen);
        assert_eq!(news.since(text), Fresh { lines, has_gap });
    }

    #[test]
    fn only_what_was_not_seen_is_new() {
        check("", "", &[], false);
        check("", "a\nb\n", &["a", "b"], false);
        check("a\nb\n", "a\nb\n", &[], false);
        check("a\nb\n", "a\nb\nc\n", &["c"], false);
        // The first lines have left the end that is seen.
        check("a\nb\nc\n", "c\nd\ne\n", &["d", "e"], false);
        check("a\nb\nc\n", "d\ne\nf\n", &["d", "e", "f"], true);
        // More of the end is seen than before.
        check("c\nd\n", "a\nb\nc\nd\ne\n", &["e"], false);
        check("c\nd\n", "a\nb\nc\nd\n", &[], false);
        // Lines that are alike.
        check("x\nx\n", "x\nx\nx\n", &["x"], false);
    }
}
