//! Texts from outside as they are shown: in errors, events, conditions and logs.

/// `text` as one line of at most about `most` bytes: what is not printable is escaped as in a string of Rust, and what
/// is cut ends in `...`. A text that is a short line already stays as it is.
pub fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if shown.len() >= most {
            shown.push_str("...");
            break;
        }
        match c {
            // Quotes and backslashes do no harm, and a text may be shown more than once.
            '"' | '\'' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// The most bytes, about, of a text that is named in a sentence: more than any name has.
const QUOTED: usize = 80;

/// `text` as [`shown`], in quotes and not long, to be named in a sentence.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text, QUOTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_and_what_acts_or_is_long_does_not() {
        let cases = [
            ("", ""),
            ("port \"http\" is C:\\80, isn't it", "port \"http\" is C:\\80, isn't it"),
            ("caf\u{e9} \u{1f600}", "caf\u{e9} \u{1f600}"),
            ("a\r\nlevel=error", "a\\r\\nlevel=error"),
            ("\u{1b}[31m\0", "\\u{1b}[31m\\0"),
            ("\u{202e}tsae\u{2028}", "\\u{202e}tsae\\u{2028}"),
        ];
        assert_eq!(cases.map(|(text, _)| shown(text, 40)), cases.map(|(_, line)| line.to_owned()));
        assert_eq!(shown(&"a".repeat(40), 40), "a".repeat(40));
        assert_eq!(shown(&"a".repeat(41), 40), format!("{}...", "a".repeat(40)));
        assert!(shown(&"\u{10ffff}".repeat(41), 40).len() < 55);
        assert_eq!(["", "a\n", "a\"b"].map(quoted), ["\"\"", "\"a\\n\"", "\"a\"b\""]);
        assert_eq!(quoted(&"a".repeat(81)), format!("\"{}...\"", "a".repeat(80)));
    }
}
