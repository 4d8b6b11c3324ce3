//! Texts that nobody writes by accident, for every field that is a text.

/// Each is refused as a DNS label, but for those of [`lengths`] that fit.
pub const TEXTS: &[&str] = &[
    "",
    " ",
    "a b",
    "use1-a ",
    "East",
    "use1_a",
    "-a",
    "a-",
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "a~1",
    "a%2Fb",
    "a%2fb",
    "%00",
    "%ff",
    "http://a",
    "a\0b",
    "\0",
    "a\nb",
    "a\r\nlevel=error forged=true",
    "a\tb",
    "\u{1b}[31mred",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{200b}",
    "\u{feff}a",
    "\u{202e}tsae",
    "\u{fffd}",
    "e\u{430}st",
    "\u{ff45}ast",
    "\u{1d5be}ast",
    "cafe\u{301}",
    "caf\u{e9}",
    "\u{1f600}",
    "\"",
    "'; drop table exports; --",
    "${jndi:ldap://a}",
    "<script>",
    "a=b,c=d",
    "NaN",
    "-1",
    "1e99",
    "null",
];

/// Texts of letters alone that are too long for some field: 64, 254, 300 and 5,000 characters.
pub fn lengths() -> impl Iterator<Item = String> {
    [64, 254, 300, 5_000].into_iter().map(|count| "a".repeat(count))
}

/// Bytes that are no UTF-8: a lone byte, an overlong `/`, a surrogate, a cut character, a number beyond Unicode.
pub const BYTES: &[&[u8]] = &[b"\xff", b"a\xc0\xafb", b"\xed\xa0\x80", b"caf\xc3", b"\xf5\x80\x80\x80"];

/// Whether a text can stand in a log line, an event or an error: one line, with nothing in it that acts on a terminal or
/// turns the reading direction.
pub fn is_plain(text: &str) -> bool {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    !text.chars().any(acts)
}
