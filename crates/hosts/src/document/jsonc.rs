//! JSON as hosts write it.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

use super::tree::{Field, Kind, Node, Style};
use super::{Broken, lines};

/// Comments and trailing commas are what hosts accept; every other liberty is a mistake of somebody's hand.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn parse(text: &str) -> Result<Node, Broken> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| {
        let (line, column) = lines::position(text, error.range().start);
        Broken { line, column, message: error.kind().to_string() }
    })?;
    let value = parsed.value.ok_or_else(|| {
        let (line, column) = lines::position(text, text.len());
        Broken { line, column, message: "there is no value in the file".to_owned() }
    })?;
    Ok(node(&value))
}

fn node(value: &ast::Value<'_>) -> Node {
    let range = value.range();
    let kind = match value {
        ast::Value::StringLit(string) => Kind::Plain(Value::String(string.value.clone().into_owned())),
        ast::Value::NumberLit(number) => Kind::Plain(number_of(number.value)),
        ast::Value::BooleanLit(boolean) => Kind::Plain(Value::Bool(boolean.value)),
        ast::Value::NullKeyword(_) => Kind::Plain(Value::Null),
        ast::Value::Array(array) => Kind::List(array.elements.iter().map(node).collect()),
        ast::Value::Object(object) => Kind::Map(object.properties.iter().map(field).collect()),
    };
    Node { range: range.start..range.end, kind, style: Style::Whole }
}

fn field(property: &ast::ObjectProp<'_>) -> Field {
    let key = property.name.range();
    Field { name: property.name.as_str().to_owned(), key: key.start..key.end, value: node(&property.value) }
}

/// One that does not fit keeps its digits: it is only ever compared.
fn number_of(digits: &str) -> Value {
    serde_json::from_str(digits).unwrap_or_else(|_| Value::String(digits.to_owned()))
}
