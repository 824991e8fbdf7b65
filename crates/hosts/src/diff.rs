//! What will change, for a person to read.

use similar::TextDiff;

/// A unified diff of two texts, under the name of the file. Empty where they are equal.
pub fn unified(name: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    TextDiff::from_lines(before, after)
        .unified_diff()
        .context_radius(3)
        .header(&format!("{name} (as it is)"), &format!("{name} (with the change)"))
        .to_string()
}
