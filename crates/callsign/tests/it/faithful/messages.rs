//! Random JSON-RPC messages as text, spacing and spelling included.
//!
//! Ids and progress tokens are holes: `⟦form⟧` in the template, filled with a number that is new for each message.

use proptest::prelude::*;

const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

/// A message with holes for what the gateway may change.
#[derive(Debug, Clone)]
pub(super) struct Message {
    template: String,
    /// For [`echoed`]: the params, which come back as the result.
    params: String,
    id: String,
}

impl Message {
    /// The message with its holes filled.
    pub(super) fn text(&self, number: u64) -> String {
        let filled = self.template.replace([OPEN, CLOSE], "").replace('\u{e002}', &number.to_string());
        let valid = serde_json::from_str::<Box<serde_json::value::RawValue>>(&filled);
        assert!(valid.is_ok(), "the generator is wrong: {filled}");
        filled
    }

    /// Whether somebody makes it: who is put into it on the way.
    pub(super) fn is_request(&self) -> bool {
        !self.id.is_empty()
    }

    /// What the echo server answers to `vendor/echo`.
    pub(super) fn answer(&self, number: u64) -> String {
        let id = self.id.replace('\u{e002}', &number.to_string());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, self.params)
    }

    /// Whether a text is this message, whatever scalar is in the holes.
    pub(super) fn matches(&self, text: &str) -> bool {
        let fixed: Vec<&str> = self
            .template
            .split(OPEN)
            .enumerate()
            .map(
                |(index, part)| {
                    if index == 0 { part } else { part.split_once(CLOSE).map_or("", |(_, rest)| rest) }
                },
            )
            .collect();
        fits(&fixed, text)
    }
}

/// The first part must be at the start; after each further one a scalar was.
fn fits(fixed: &[&str], text: &str) -> bool {
    let Some((first, rest)) = fixed.split_first() else { return text.is_empty() };
    let Some(text) = text.strip_prefix(first) else { return false };
    if rest.is_empty() {
        return text.is_empty();
    }
    // The scalar may be of any length: try each.
    let ends = text.char_indices().map(|(at, _)| at).skip(1).chain([text.len()]).take(300);
    ends.into_iter().any(|end| scalar(&text[..end]) && fits(rest, &text[end..]))
}

fn scalar(text: &str) -> bool {
    let value: Result<serde_json::Value, _> = serde_json::from_str(text);
    text.trim() == text && value.is_ok_and(|value| value.is_number() || value.is_string())
}

/// Requests and notifications of all kinds, with and without tokens.
pub(super) fn any() -> impl Strategy<Value = Message> {
    prop_oneof![3 => request(), 1 => notification()]
}

fn request() -> impl Strategy<Value = Message> {
    let method = prop_oneof![
        Just("\"tools/call\"".to_owned()),
        Just("\"tools\\/call\"".to_owned()),
        Just("\"prompts/get\"".to_owned()),
        Just("\"completion/complete\"".to_owned()),
        Just("\"vendor/method\"".to_owned()),
        Just("\"v\\u0065ndor.escaped\"".to_owned()),
    ];
    let params = prop_oneof![4 => params(true).prop_map(Some), 1 => Just(None)];
    (method, params, id(), extra(), space()).prop_flat_map(|(method, params, id, extra, space)| {
        let hole = format!("{OPEN}{id}{CLOSE}");
        let mut fields = vec![
            field("jsonrpc", "\"2.0\"", &space),
            field("id", &hole, &space),
            field("method", &method, &space),
        ];
        fields.extend(params.map(|params| field("params", &params, &space)));
        fields.extend(extra);
        shuffled(fields, space).prop_map(move |template| Message {
            template,
            params: String::new(),
            id: id.clone(),
        })
    })
}

/// A notification that no specification knows.
pub(super) fn notification() -> impl Strategy<Value = Message> {
    let params = prop_oneof![4 => params(false).prop_map(Some), 1 => Just(None)];
    (params, extra(), space()).prop_flat_map(|(params, extra, space)| {
        let mut fields =
            vec![field("jsonrpc", "\"2.0\"", &space), field("method", "\"notifications/vendor\"", &space)];
        fields.extend(params.map(|params| field("params", &params, &space)));
        fields.extend(extra);
        shuffled(fields, space).prop_map(|template| Message {
            template,
            params: String::new(),
            id: String::new(),
        })
    })
}

/// `vendor/echo`, whose params come back as they were.
pub(super) fn echoed() -> impl Strategy<Value = Message> {
    (params(false), id(), extra(), space()).prop_flat_map(|(params, id, extra, space)| {
        let hole = format!("{OPEN}{id}{CLOSE}");
        let mut fields = vec![
            field("jsonrpc", "\"2.0\"", &space),
            field("id", &hole, &space),
            field("method", "\"vendor/echo\"", &space),
            field("params", &params, &space),
        ];
        fields.extend(extra);
        shuffled(fields, space).prop_map(move |template| Message {
            template,
            params: params.clone(),
            id: id.clone(),
        })
    })
}

/// `params`: an object with `_meta`, perhaps with a token, and other things; now and then a list.
fn params(tokens: bool) -> BoxedStrategy<String> {
    let token = prop_oneof![Just(false), Just(tokens)];
    let meta = (token, id(), extra(), space()).prop_flat_map(|(token, id, mut fields, space)| {
        if token {
            fields.push(field("progressToken", &format!("{OPEN}{id}{CLOSE}"), &space));
        }
        shuffled(fields, space)
    });
    let object = (prop::option::of(meta), prop::option::of(value()), extra(), space()).prop_flat_map(
        |(meta, arguments, mut fields, space)| {
            fields.push(field("name", "\"echo\"", &space));
            fields.extend(meta.map(|meta| field("_meta", &meta, &space)));
            // The arguments of a tool are an object; what they hold is free.
            fields.extend(arguments.map(|value| field("arguments", &format!("{{\"a\":{value}}}"), &space)));
            shuffled(fields, space)
        },
    );
    object.boxed()
}

fn shuffled(fields: Vec<String>, space: String) -> impl Strategy<Value = String> {
    Just(fields)
        .prop_shuffle()
        .prop_map(move |fields| format!("{{{space}{}{space}}}", fields.join(&format!("{space},"))))
}

fn field(name: &str, value: &str, space: &str) -> String {
    format!("\"{name}\"{space}:{space}{value}")
}

/// A string without its quotes; an escaped one at the end stays.
fn bare(string: &str) -> &str {
    string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(string)
}

/// Fields of a vendor, all with different names.
fn extra() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec((string(), value(), space()), 0..3).prop_map(|fields| {
        let named = fields.into_iter().enumerate();
        named
            .map(|(index, (name, value, space))| {
                let name = bare(&name);
                format!("\"x-{index}-{name}\"{space}:{space}{value}")
            })
            .collect()
    })
}

/// Spellings of an id or a token; the number comes in later.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\u{e002}".to_owned()),
        Just("-\u{e002}".to_owned()),
        Just("\"s\u{e002}\"".to_owned()),
        Just("\"\\u0041\u{e002} ü/\\\"\"".to_owned()),
    ]
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \t]{1,3}"]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?",
        Just("-0".to_owned()),
        Just("1.0".to_owned()),
        Just("1E+2".to_owned()),
        Just("9007199254740993".to_owned()),
    ]
}

/// A string as it is written, quotes included.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z0-9 .:/_-]{1,8}",
        1 => "[^\"\\\\\\x00-\\x1f\u{e000}-\u{e002}]{1,4}",
        1 => prop_oneof![
            Just("\\n"), Just("\\u0000"), Just("\\/"), Just("\\\""), Just("\\\\"), Just("\\u00fc"),
            Just("\\ud834\\udd1e"), Just("\u{7f}"), Just("\u{2028}"), Just("\u{feff}"), Just("\\b\\f\\t\\r"),
        ].prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        number(),
        string(),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        // Half a character: no text, but well-formed JSON.
        Just("\"\\ud800\"".to_owned()),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let list = (prop::collection::vec(inner.clone(), 1..4), space())
            .prop_map(|(items, space)| format!("[{space}{}]", items.join(&format!(",{space}"))));
        let object = (prop::collection::vec((string(), inner), 1..4), space()).prop_map(|(fields, space)| {
            let fields = fields.into_iter().enumerate().map(|(index, (name, value))| {
                let name = bare(&name);
                format!("\"{index}{name}\"{space}:{value}")
            });
            format!("{{{}{space}}}", fields.collect::<Vec<_>>().join(","))
        });
        prop_oneof![list, object]
    })
}
