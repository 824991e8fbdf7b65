//! Typed access to the spanned document. A value of another type is a mistake at its place.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::context::Context;

/// A table's fields in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Table<'i> {
    pub fields: Vec<Field<'i>>,
}

/// One value: of a key, or one of a list.
#[derive(Debug)]
pub(super) struct Field<'i> {
    /// Empty for one of a list.
    pub key: &'i str,
    pub key_at: usize,
    pub at: usize,
    /// How messages call it.
    pub label: String,
    value: &'i DeValue<'i>,
}

impl<'i> Table<'i> {
    /// `path` leads to this table and ends in a dot, or is empty.
    pub(super) fn new(table: &'i DeTable<'i>, path: &str) -> Self {
        let field = |(key, value): (&'i Spanned<_>, &'i Spanned<DeValue<'i>>)| {
            let name: &std::borrow::Cow<'i, str> = key.get_ref();
            let label = format!("`{path}{name}`");
            Field {
                key: name,
                key_at: key.span().start,
                at: value.span().start,
                label,
                value: value.get_ref(),
            }
        };
        let mut fields: Vec<_> = table.iter().map(field).collect();
        fields.sort_by_key(|field| field.key_at);
        Self { fields }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Field<'i>> {
        self.fields.iter().find(|field| field.key == key)
    }

    /// Reports keys that are not known, and those that are known and not there yet.
    pub(super) fn check_keys(&self, context: Context<'_>, known: &[&str], later: &[&str]) {
        for field in &self.fields {
            let key = field.key;
            if known.contains(&key) {
                continue;
            }
            if later.contains(&key) {
                context.mistake(field.key_at, not_available(&format!("`{key}`")));
                continue;
            }
            let advice = nearest(key, known.iter().chain(later).copied()).map_or_else(
                || format!("this table takes {}", known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            context.mistake(field.key_at, format!("unknown key `{key}`; {advice}"));
        }
    }
}

pub(super) fn not_available(what: &str) -> String {
    format!("{what} is not available in this version of callsign")
}

/// The candidate that `word` was probably meant to be.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::osa_distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

impl<'i> Field<'i> {
    pub(super) fn string(&self, context: Context<'_>) -> Option<&'i str> {
        match self.value {
            DeValue::String(text) => Some(text),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                self.wrong(context, "a string", "; put it in quotes")
            }
            DeValue::Array(_) | DeValue::Table(_) => self.wrong(context, "a string", ""),
        }
    }

    /// A string that something is started with or found by.
    pub(super) fn text(&self, context: Context<'_>) -> Option<&'i str> {
        let text = self.string(context)?;
        if text.is_empty() {
            context.mistake(self.at, format!("{} is empty", self.label));
            return None;
        }
        self.without_nul(context, text)
    }

    pub(super) fn without_nul(&self, context: Context<'_>, text: &'i str) -> Option<&'i str> {
        if text.contains('\0') {
            context.mistake(self.at, format!("{} holds a NUL character; take it out", self.label));
            return None;
        }
        Some(text)
    }

    pub(super) fn boolean(&self, context: Context<'_>) -> Option<bool> {
        let DeValue::Boolean(value) = self.value else {
            return self.wrong(context, "true or false", "");
        };
        Some(*value)
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self.value, DeValue::String(_))
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// The number of an integer; None for any other type, without a word.
    pub(super) fn integer(&self) -> Option<Result<u64, std::num::ParseIntError>> {
        let DeValue::Integer(number) = self.value else {
            return None;
        };
        Some(u64::from_str_radix(number.as_str(), number.radix()))
    }

    pub(super) fn list(&self, context: Context<'_>, expected: &str) -> Option<Vec<Self>> {
        let DeValue::Array(values) = self.value else {
            return self.wrong(context, expected, "");
        };
        let item = |value: &'i Spanned<DeValue<'i>>| {
            let at = value.span().start;
            Field {
                key: "",
                key_at: at,
                at,
                label: format!("each of {}", self.label),
                value: value.get_ref(),
            }
        };
        Some(values.iter().map(item).collect())
    }

    pub(super) fn table(&self, context: Context<'_>, path: &str) -> Option<Table<'i>> {
        let DeValue::Table(table) = self.value else {
            return self.wrong(context, "a table", "");
        };
        Some(Table::new(table, path))
    }

    pub(super) fn wrong<T>(&self, context: Context<'_>, expected: &str, advice: &str) -> Option<T> {
        let kind = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        context.mistake(self.at, format!("{} must be {expected}, not {kind}{advice}", self.label));
        None
    }
}
