//! What is wrong with a configuration: where, which key, why, and what to write instead.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from. Later ones win over earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Place {
    /// Nobody wrote it.
    #[default]
    Default,
    /// A line of the file.
    Line(usize),
    /// An environment variable.
    Variable(String),
    /// A flag on the command line.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong, or risky.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Where it was written.
    pub(crate) place: Place,
    /// The key, such as `limits.connections`; empty when it is about none.
    pub(crate) key: String,
    /// Why it is wrong, and what to do.
    pub(crate) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != Place::Default {
            write!(f, "{}: ", self.place)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.text)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigErrors {
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// In the order of the file, then of the environment, then of the flags. Never empty.
    pub(crate) errors: Vec<Finding>,
}

impl ConfigErrors {
    pub(crate) fn new(file: Option<PathBuf>, mut errors: Vec<Finding>) -> Self {
        errors.sort();
        errors.dedup();
        Self { file, errors }
    }

    /// Whether flags alone are to blame: then it is a mistake of the command line.
    pub(crate) fn are_of_flags(&self) -> bool {
        let mut errors = self.errors.iter();
        errors.all(|error| matches!(error.place, Place::Flag(_)))
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}", file.display())?,
            None => f.write_str("the configuration")?,
        }
        f.write_str(" cannot be used:")?;
        for error in &self.errors {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// `: did you mean "retention"?`, when one of the names is close to what was written.
pub(crate) fn did_you_mean<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    // Two slips in a short word are another word.
    let slips_max = (written.chars().count() / 3).clamp(1, 3);
    let nearest = names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .min_by_key(|(slips, _)| *slips)?;
    (nearest.0 <= slips_max).then(|| format!("did you mean \"{}\"?", nearest.1))
}
