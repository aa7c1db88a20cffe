//! Colour, where it is wanted.

/// Bold, red and green keep their meaning on dark and on light backgrounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("1;32", text)
    }

    /// Green when it is none.
    pub(crate) fn none_is_good(self, number: u64, text: &str) -> String {
        if number == 0 {
            self.green(text)
        } else {
            self.red(text)
        }
    }
}
