//! Values as bytes that never leave the process: whoever wrote them reads them.

/// Writes values one after the other.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// Seven bits a byte, the lowest first.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    pub(crate) fn maybe_text(&mut self, text: Option<&str>) {
        self.0.push(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }
}

/// Reads what a [`Writer`] wrote; what it did not write ends the reading.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        // Most have one byte.
        if let [first @ ..=0x7f, rest @ ..] = self.0 {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte <= 0x7f {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn count(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).ok()
    }

    pub(crate) fn maybe_text(&mut self) -> Option<Option<&'a str>> {
        if self.byte()? == 0 { Some(None) } else { self.text().map(Some) }
    }
}
