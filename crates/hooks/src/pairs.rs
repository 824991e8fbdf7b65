//! Headers and variables while a hook writes them. They lie here and not in the engine: a hook sets them in every call,
//! and this way each costs one call of a function.

use rquickjs::{Ctx, Exception, Result, Value};

use crate::draft::Pairs;
use crate::rules::{self, Kind, Rules};

/// Headers or variables of one call.
pub(crate) const MOST: usize = 256;
/// Bytes of all of them together.
const LARGEST: usize = 1 << 20;
/// Names that are remembered as good. Hooks set the same ones in every call.
const KNOWN: usize = 64;

/// The headers of a call, or its variables.
#[derive(Debug)]
pub(crate) struct Writing {
    kind: Kind,
    /// Key, name and value. Names of headers are the same in upper and lower case, so theirs have another key.
    list: Vec<(String, String, String)>,
    changed: bool,
    /// Names that can be, with their keys.
    known: Vec<(String, String)>,
}

impl Writing {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, list: Vec::new(), changed: false, known: Vec::new() }
    }

    /// Begins a call with these.
    pub(crate) fn begin(&mut self, pairs: Pairs) {
        self.list.clear();
        self.list.extend(pairs.into_iter().map(|(name, value)| (self.kind.key(&name), name, value)));
        self.changed = false;
    }

    /// What a hook has made of them; none: nothing.
    pub(crate) fn end(&mut self) -> Option<Pairs> {
        let changed = std::mem::take(&mut self.changed);
        let list = std::mem::take(&mut self.list);
        changed.then(|| list.into_iter().map(|(_, name, value)| (name, value)).collect())
    }

    /// Takes all of them out.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.changed = true;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.list.iter().map(|(_, name, _)| name.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let key = self.kind.key(name);
        self.list.iter().find(|(known, ..)| *known == key).map(|(.., value)| value.clone())
    }

    /// Sets one, or takes it out where the value is `null` or `undefined`. Throws where it cannot be.
    pub(crate) fn put(
        &mut self,
        ctx: &Ctx<'_>,
        rules: &Rules,
        name: &Value<'_>,
        value: &Value<'_>,
    ) -> Result<bool> {
        let what = self.kind.what();
        let refuse = |why: &str| Exception::throw_type(ctx, why);
        let Some(name) = name.as_string() else {
            return Err(refuse(&format!("the name of a {what} must be a string, not a symbol")));
        };
        let Ok(name) = name.to_string() else {
            return Err(refuse(&format!("the name of a {what} has half a character in it")));
        };
        let value = match value.as_string() {
            Some(text) => match text.to_string() {
                Ok(text) => Some(text),
                Err(_) => {
                    return Err(refuse(&format!(
                        "the value of the {what} `{name}` has half a character in it"
                    )));
                }
            },
            None if value.is_undefined() || value.is_null() => None,
            None => {
                let found = kind_of(value);
                return Err(refuse(&format!("the {what} `{name}` must be a string, not {found}")));
            }
        };
        let key = self.key_of(rules, &name).map_err(|why| refuse(&why))?;
        let at = self.list.iter().position(|(known, ..)| *known == key);
        match (value, at) {
            (None, Some(at)) => drop(self.list.remove(at)),
            (None, None) => {}
            (Some(value), at) => {
                rules::check_value(what, &value, || name.clone()).map_err(|why| refuse(&why))?;
                let held: usize = self.list.iter().map(|(_, name, value)| name.len() + value.len()).sum();
                if held + name.len() + value.len() > LARGEST {
                    return Err(refuse(&format!("all {what}s together can have at most {LARGEST} bytes")));
                }
                match at {
                    Some(at) => self.list[at] = (key, name, value),
                    None if self.list.len() >= MOST => {
                        return Err(refuse(&format!("there can be at most {MOST} {what}s")));
                    }
                    None => self.list.push((key, name, value)),
                }
            }
        }
        self.changed = true;
        Ok(true)
    }

    fn key_of(&mut self, rules: &Rules, name: &str) -> std::result::Result<String, String> {
        if let Some((_, key)) = self.known.iter().find(|(known, _)| known == name) {
            return Ok(key.clone());
        }
        rules.check(self.kind, name, None)?;
        let key = self.kind.key(name);
        if self.known.len() < KNOWN {
            self.known.push((name.to_owned(), key.clone()));
        }
        Ok(key)
    }
}

fn kind_of(value: &Value<'_>) -> String {
    let kind = if value.is_array() {
        return "a list".to_owned();
    } else if value.is_function() || value.is_constructor() {
        "function"
    } else if value.is_number() {
        "number"
    } else if value.is_bool() {
        "boolean"
    } else if value.is_symbol() {
        "symbol"
    } else if value.is_object() {
        "object"
    } else {
        "bigint"
    };
    format!("a value of type {kind}")
}
