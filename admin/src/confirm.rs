//! A question on the terminal, before what cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

/// Why there is no yes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unconfirmed {
    /// Nobody can be asked: bad usage, as the flag that answers is missing.
    #[error("standard input is no terminal, so that nobody can be asked: --yes says yes")]
    NoTerminal,
    /// The answer was no, or none.
    #[error("nothing was removed")]
    No,
    /// The terminal cannot be read or written.
    #[error("the terminal cannot be used")]
    Terminal(#[from] io::Error),
}

/// Where questions are asked.
pub(crate) struct Confirm<'a> {
    is_terminal: bool,
    input: Box<dyn BufRead + 'a>,
    output: Box<dyn Write + 'a>,
}

#[cfg(test)]
impl<'a> Confirm<'a> {
    /// A terminal at which somebody types this.
    pub(crate) fn answered(input: impl BufRead + 'a) -> Self {
        Self { is_terminal: true, input: Box::new(input), output: Box::new(io::sink()) }
    }
}

impl Confirm<'_> {
    /// Standard input and, so that what is printed stays clean, standard error.
    pub(crate) fn of_process() -> Self {
        let input = io::stdin();
        Self {
            is_terminal: input.is_terminal(),
            input: Box::new(io::BufReader::new(input)),
            output: Box::new(io::stderr()),
        }
    }

    /// Whether somebody can be asked.
    ///
    /// # Errors
    /// Nobody can.
    pub(crate) const fn check(&self) -> Result<(), Unconfirmed> {
        if self.is_terminal { Ok(()) } else { Err(Unconfirmed::NoTerminal) }
    }

    /// Says `what` it is about, asks `question`, and waits for the answer.
    ///
    /// # Errors
    /// The answer is not yes, or there is none.
    pub(crate) fn ask(&mut self, what: &str, question: &str) -> Result<(), Unconfirmed> {
        self.check()?;
        write!(self.output, "{what}.\n{question} [y/N] ")?;
        self.output.flush()?;
        let mut answer = String::new();
        self.input.read_line(&mut answer)?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Unconfirmed::No),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes_and_the_end_of_the_input_is_none() {
        for (answer, is_yes) in
            [("y\n", true), ("Yes\r\n", true), ("n\n", false), ("\n", false), ("", false), ("yo\n", false)]
        {
            let mut output = Vec::new();
            let mut confirm = Confirm {
                is_terminal: true,
                input: Box::new(answer.as_bytes()),
                output: Box::new(&mut output),
            };
            assert_eq!(confirm.ask("it is red", "Paint it?").is_ok(), is_yes, "{answer:?}");
            drop(confirm);
            assert_eq!(String::from_utf8(output).unwrap(), "it is red.\nPaint it? [y/N] ");
        }
    }

    #[test]
    fn nobody_is_asked_where_there_is_no_terminal() {
        let mut output = Vec::new();
        let mut confirm =
            Confirm { is_terminal: false, input: Box::new(&b"y\n"[..]), output: Box::new(&mut output) };
        assert!(matches!(confirm.ask("it is red", "Paint it?"), Err(Unconfirmed::NoTerminal)));
        drop(confirm);
        assert_eq!(output, b"");
    }
}
