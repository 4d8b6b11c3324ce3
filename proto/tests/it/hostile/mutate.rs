//! Mutations of protobuf messages that stay messages: a field is changed, doubled, moved or dropped, and the lengths
//! around it follow. Random bytes rarely get past a length; these get to what is behind it.

use super::texts::{BYTES, TEXTS, lengths};
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// Numbers by which a sequence is decided: the same seed gives the same mutations in every process (splitmix64).
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let place = self.below(of.len());
        &of[place]
    }
}

/// Messages within messages that are taken apart; deeper ones count as bytes.
const DEPTH: usize = 12;

#[derive(Clone, Debug)]
struct Field {
    tag: u32,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Eight(u64),
    Four(u32),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// Another message, made from `message` by a few changes.
pub fn mutate(message: &[u8], random: &mut Random) -> Vec<u8> {
    let mut fields = read(message, DEPTH).unwrap_or_default();
    for _ in 0..=random.below(4) {
        change(&mut fields, random);
    }
    let mut bytes = Vec::new();
    write(&fields, &mut bytes);
    if random.below(16) == 0 && !bytes.is_empty() {
        let place = random.below(bytes.len());
        bytes[place] ^= 1 << random.below(8);
    }
    bytes
}

fn read(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while bytes.has_remaining() {
        let (tag, wire_type) = decode_key(&mut bytes).ok()?;
        let value = match wire_type {
            WireType::Varint => Value::Number(decode_varint(&mut bytes).ok()?),
            WireType::SixtyFourBit => Value::Eight(bytes.try_get_u64_le().ok()?),
            WireType::ThirtyTwoBit => Value::Four(bytes.try_get_u32_le().ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
                let (content, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                // A text could be read as a message too; one of printable characters is none.
                let is_text = !content.is_empty() && content.iter().all(|byte| *byte >= b' ');
                match read(content, depth.checked_sub(1)?).filter(|_| !is_text) {
                    Some(message) => Value::Message(message),
                    None => Value::Bytes(content.to_vec()),
                }
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        fields.push(Field { tag, value });
    }
    Some(fields)
}

fn write(fields: &[Field], bytes: &mut Vec<u8>) {
    for Field { tag, value } in fields {
        match value {
            Value::Number(number) => {
                encode_key(*tag, WireType::Varint, bytes);
                encode_varint(*number, bytes);
            }
            Value::Eight(number) => {
                encode_key(*tag, WireType::SixtyFourBit, bytes);
                bytes.extend(number.to_le_bytes());
            }
            Value::Four(number) => {
                encode_key(*tag, WireType::ThirtyTwoBit, bytes);
                bytes.extend(number.to_le_bytes());
            }
            Value::Bytes(content) => write_bytes(*tag, content, bytes),
            Value::Message(fields) => {
                let mut content = Vec::new();
                write(fields, &mut content);
                write_bytes(*tag, &content, bytes);
            }
        }
    }
}

fn write_bytes(tag: u32, content: &[u8], bytes: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, bytes);
    encode_varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

/// Changes one field, here or within one of these.
fn change(fields: &mut Vec<Field>, random: &mut Random) {
    if fields.is_empty() {
        let tag = 1 + u32::try_from(random.below(12)).unwrap();
        fields.push(Field { tag, value: any_value(random) });
        return;
    }
    let place = random.below(fields.len());
    if let Value::Message(inner) = &mut fields[place].value
        && random.below(8) != 0
    {
        return change(inner, random);
    }
    match random.below(12) {
        0 => drop(fields.remove(place)),
        1 => fields.insert(place, fields[place].clone()),
        2 => {
            let other = random.below(fields.len());
            fields.swap(place, other);
        }
        3 => fields[place].tag = 1 + u32::try_from(random.below(16)).unwrap(),
        4 => {
            let other = random.below(fields.len());
            fields[place].value = fields[other].value.clone();
        }
        5 => fields[place].value = any_value(random),
        // Many of one kind: limits of counts.
        6 => {
            let field = fields[place].clone();
            let count = [2, 65, 101][random.below(3)];
            fields.splice(place..place, std::iter::repeat_n(field, count));
        }
        _ => change_value(&mut fields[place].value, random),
    }
}

fn change_value(value: &mut Value, random: &mut Random) {
    match value {
        Value::Number(number) => {
            *number = match random.below(3) {
                0 => number.wrapping_add(1),
                1 => number.wrapping_sub(1),
                _ => any_number(random),
            }
        }
        Value::Bytes(bytes) => match random.below(6) {
            0 if !bytes.is_empty() => drop(bytes.pop()),
            1 if !bytes.is_empty() => {
                let place = random.below(bytes.len());
                bytes[place] = u8::try_from(random.below(256)).unwrap();
            }
            2 => bytes.extend_from_slice(random.pick(TEXTS).as_bytes()),
            _ => *bytes = any_bytes(random),
        },
        Value::Eight(_) | Value::Four(_) | Value::Message(_) => *value = any_value(random),
    }
}

fn any_value(random: &mut Random) -> Value {
    match random.below(8) {
        0..=2 => Value::Number(any_number(random)),
        3 => Value::Eight(random.next()),
        4 => Value::Four(u32::MAX),
        5 => Value::Message(Vec::new()),
        _ => Value::Bytes(any_bytes(random)),
    }
}

fn any_number(random: &mut Random) -> u64 {
    const EDGES: [u64; 16] = [
        0,
        1,
        2,
        3,
        53,
        80,
        65_535,
        65_536,
        86_400,
        86_401,
        i32::MAX as u64,
        u32::MAX as u64,
        i64::MAX as u64,
        i64::MIN as u64,
        u64::MAX - 1,
        u64::MAX,
    ];
    match random.below(4) {
        0 => random.next(),
        1 => random.next() % 300,
        _ => *random.pick(&EDGES),
    }
}

fn any_bytes(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => random.pick(BYTES).to_vec(),
        1 => {
            let long: Vec<String> = lengths().collect();
            random.pick(&long).clone().into_bytes()
        }
        2 => vec![0; 16],
        3 => (0..random.below(20)).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
        _ => random.pick(TEXTS).as_bytes().to_vec(),
    }
}
