//! proto3 JSON as it comes in: text → value → message.
//!
//! The text is read into a value first, so that what the generated readers do not look at is decided in one place:
//! an object that names a key twice is refused, wherever it is, since two readers may take different ones for it; a
//! member that is null counts as not there; and the depth is limited by the parser. Reading the message from the value
//! then names the field that is wrong, as `spec.ports[0].port`.

use std::cell::RefCell;
use std::fmt;

use mcs_core::text;
use mcs_core::validate::Refusal;
use serde::Deserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// An answer repeats at most about so many bytes of what was sent.
const MOST_REPEATED: usize = 200;

/// What the generated readers say of a number that the field cannot hold, as a number and as a text.
const NO_NUMBER: [&str; 5] = [
    "data did not match any variant of untagged enum",
    "invalid digit found in string",
    "cannot parse integer from empty string",
    "number too large to fit in target type",
    "number too small to fit in target type",
];

/// The members of a JSON object.
///
/// # Errors
/// The text is not JSON, or no object; by line and column, counted from `line`.
pub(super) fn parse(text: &[u8], line: usize) -> Result<Map<String, Value>, Refusal> {
    let twice = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let parsed = Tree { twice: &twice }.deserialize(&mut reader).and_then(|value| {
        reader.end()?;
        Ok(value)
    });
    match parsed {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(Refusal::new("the body", "must be a JSON object")),
        Err(error) => {
            let (line, column) = ((line + error.line()).saturating_sub(1), error.column());
            let at = format!("at line {line}, column {column}");
            Err(match twice.into_inner() {
                Some(key) => Refusal::new(shortened(&key), format!("is named twice in one object, {at}")),
                None => Refusal::new("the body", format!("is not JSON {at}: {}", without_place(&error))),
            })
        }
    }
}

/// A message from its members.
///
/// # Errors
/// The field that is wrong.
pub(super) fn read<M: DeserializeOwned>(members: Map<String, Value>) -> Result<M, Refusal> {
    serde_path_to_error::deserialize(Value::Object(members)).map_err(|error| {
        let field = match error.path().to_string() {
            root if root == "." => "the body".to_owned(),
            field => shortened(&field),
        };
        Refusal::new(field, problem(&error.into_inner().to_string()))
    })
}

/// What a generated reader found wrong, in our words where its own say little.
fn problem(told: &str) -> String {
    if NO_NUMBER.iter().any(|no_number| told.starts_with(no_number)) {
        return "must be a whole number that the field can hold".to_owned();
    }
    // Of a number that no enum has it says what is expected in two layers, each with the word.
    shortened(&told.replacen("expected expected", "expected", 1))
}

/// What was sent, as it may stand in an answer.
fn shortened(text: &str) -> String {
    text::shown(text, MOST_REPEATED)
}

/// A value that was sent, for a message of ours.
pub(super) fn shown(value: &Value) -> String {
    shortened(&value.to_string())
}

/// A number without a fraction, where a float has it exactly.
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then(|| format!("{value:.0}").parse().ok()).flatten()
}

fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    shortened(text.strip_suffix(&place).unwrap_or(&text))
}

/// Any JSON value.
#[derive(Clone, Copy)]
struct Tree<'a> {
    /// The key that an object names twice.
    twice: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// A whole number may be written as `80.0` and `8e1`, as proto3 JSON has it. The API has no other fields of numbers.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        if let Some(whole) = whole(value) {
            return Ok(whole.into());
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = items.next_key::<String>()? {
            let value = items.next_value_seed(self)?;
            if members.contains_key(&key) {
                *self.twice.borrow_mut() = Some(key);
                return Err(A::Error::custom("a key is named twice"));
            }
            members.insert(key, value);
        }
        // Only now: a key that is named twice is refused also when one of the two is null.
        members.retain(|_, value| !value.is_null());
        Ok(Value::Object(members))
    }
}
