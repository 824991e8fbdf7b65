//! TOML.

use serde_json::Value;
use toml_edit::{Document, Item, Table, TableLike};

use super::tree::{Field, Kind, Node, Style};
use super::{Broken, lines};

pub(super) fn parse(text: &str) -> Result<Node, Broken> {
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        let (line, column) = lines::position(text, at);
        Broken { line, column, message: error.message().trim().replace('\n', ", ") }
    })?;
    let fields = fields(document.as_table());
    Ok(Node { range: 0..text.len(), kind: Kind::Map(fields), style: Style::Lines })
}

fn fields(table: &dyn TableLike) -> Vec<Field> {
    let mut fields = Vec::new();
    for (name, item) in table.iter() {
        let key = table.key(name).and_then(toml_edit::Key::span).unwrap_or_default();
        fields.push(Field { name: name.to_owned(), key, value: of_item(item) });
    }
    fields
}

fn of_item(item: &Item) -> Node {
    match item {
        Item::None => Node::plain(0..0, Value::Null),
        Item::Value(value) => of_value(value),
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => Node {
            range: tables.span().unwrap_or_default(),
            kind: Kind::List(tables.iter().map(of_table).collect()),
            style: Style::Header,
        },
    }
}

fn of_table(table: &Table) -> Node {
    // A table that only its subtables name has no place either.
    let style = if table.is_dotted() || table.is_implicit() { Style::Dotted } else { Style::Header };
    Node { range: table.span().unwrap_or_default(), kind: Kind::Map(fields(table)), style }
}

fn of_value(value: &toml_edit::Value) -> Node {
    let range = value.span().unwrap_or_default();
    let kind = match value {
        toml_edit::Value::String(string) => Kind::Plain(Value::String(string.value().clone())),
        toml_edit::Value::Integer(integer) => Kind::Plain(Value::from(*integer.value())),
        toml_edit::Value::Boolean(boolean) => Kind::Plain(Value::Bool(*boolean.value())),
        // Only ever compared; a value that JSON has no word for is compared as it is written.
        toml_edit::Value::Float(float) => Kind::Plain(Value::String(float.value().to_string())),
        toml_edit::Value::Datetime(time) => Kind::Plain(Value::String(time.value().to_string())),
        toml_edit::Value::Array(array) => Kind::List(array.iter().map(of_value).collect()),
        toml_edit::Value::InlineTable(table) => {
            let style = if table.is_dotted() { Style::Dotted } else { Style::Whole };
            return Node { range, kind: Kind::Map(fields(table)), style };
        }
    };
    Node { range, kind, style: Style::Whole }
}
