//! Defaults ← file ← environment ← flags, into the sections, with everything that is wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{Finding, Place, did_you_mean};
use super::field::{Field, Visitor};
use super::raw::{Entry, Table, Value};

/// What every variable of the configuration begins with.
const PREFIX: &str = "ONLYONCE_";

/// Variables that are others' business: the file's own name, the URLs of `onlyonce copy`, an
/// operator's token, and the switches of the tests and benchmarks. Those that end in `_` are
/// beginnings.
const OTHER_VARIABLES: [&str; 7] = [
    "ONLYONCE_CONFIG",
    "ONLYONCE_COPY_FROM",
    "ONLYONCE_COPY_TO",
    "ONLYONCE_TOKEN",
    "ONLYONCE_UPDATE",
    "ONLYONCE_SIM_",
    "ONLYONCE_BENCH_",
];

/// Sections of which there may be several.
const LISTS: [&str; 3] = ["route", "probe", "webhook"];

/// What a profile may say, to tell where a stray key belongs.
const PROFILE_KEYS: [&str; 24] = [
    "extends",
    "about",
    "follows",
    "notes",
    "methods",
    "key",
    "required",
    "first_sent",
    "caller",
    "scope",
    "retention",
    "path",
    "compare",
    "fingerprint_headers",
    "drop_headers",
    "cookies",
    "wait",
    "in_flight",
    "reuse",
    "statuses",
    "headers",
    "request_id",
    "resource_id",
    "answers",
];

/// Where each value was written, by key: `limits.connections`, `route[0].lease`.
pub(crate) type Places = BTreeMap<String, Place>;

/// A flag: section, key, its own name, its value.
pub(crate) type FlagValue = (&'static str, &'static str, &'static str, String);

/// Reads every key that it is shown, and remembers what nobody asked for.
pub(crate) struct Reader {
    flags: Vec<FlagValue>,
    variables: BTreeMap<String, String>,
    known_variables: Vec<String>,
    root: Table,
    here: Here,
    /// The keys of every section seen, to tell slips from inventions.
    known: BTreeMap<&'static str, BTreeSet<&'static str>>,
    pub(crate) places: Places,
    pub(crate) errors: Vec<Finding>,
}

/// The section that is being read.
struct Here {
    section: &'static str,
    /// `limits.`, `route[0].`, or nothing at the top.
    prefix: String,
    table: Table,
}

impl Reader {
    pub(crate) fn new(
        root: Table,
        variables: impl Iterator<Item = (String, String)>,
        flags: Vec<FlagValue>,
    ) -> Self {
        let variables = variables.filter(|(name, _)| {
            name.starts_with(PREFIX)
                && !OTHER_VARIABLES
                    .iter()
                    .any(|other| name == other || (other.ends_with('_') && name.starts_with(other)))
        });
        Self {
            flags,
            variables: variables.collect(),
            known_variables: Vec::new(),
            root,
            here: Here {
                section: "",
                prefix: String::new(),
                table: Table::default(),
            },
            known: BTreeMap::new(),
            places: Places::new(),
            errors: Vec::new(),
        }
    }

    /// The profile that the whole configuration names, before anything is read: the others' own
    /// defaults depend on it.
    pub(crate) fn profile_name(&self) -> Option<String> {
        let mut flags = self.flags.iter();
        let flag = flags.find(|(section, key, ..)| section.is_empty() && *key == "profile");
        let flag = flag.map(|(.., text)| text.clone());
        let variable = || self.variables.get(&format!("{PREFIX}PROFILE")).cloned();
        flag.or_else(variable).or_else(|| named_profile(&self.root))
    }

    /// The `[profiles]` of the file, as they are written.
    pub(crate) fn profiles(&mut self) -> Table {
        self.known.entry("profiles").or_default();
        match self.root.take("profiles") {
            Some(Entry {
                value: Value::Table(table),
                ..
            }) => table,
            // That it is no table was said when the profiles were read.
            Some(_) | None => Table::default(),
        }
    }

    /// The `[[name]]` tables, each over the choices that hold for all, or for its own profile.
    pub(crate) fn list<T>(
        &mut self,
        name: &'static str,
        blank: &dyn Fn(Option<&str>) -> T,
        visit: impl Fn(&mut T, &mut Self),
    ) -> Vec<T> {
        let tables = self.tables(name);
        if tables.is_empty() {
            // Its keys must be known also when there is none, to tell where a stray key belongs.
            self.item(name, 0, Table::default());
            visit(&mut blank(None), self);
        }
        let mut list = Vec::new();
        for (index, (line, table)) in tables.into_iter().enumerate() {
            let mut item = blank(named_profile(&table).as_deref());
            self.item(name, index, table);
            visit(&mut item, self);
            let place = Place::Line(line);
            self.places.insert(format!("{name}[{index}]"), place);
            list.push(item);
        }
        list
    }

    /// Each with its line.
    fn tables(&mut self, name: &'static str) -> Vec<(usize, Table)> {
        self.close();
        self.known.entry(name).or_default();
        let Some(Entry { line, value, .. }) = self.root.take(name) else {
            return Vec::new();
        };
        let Value::List(items) = value else {
            let text =
                format!("a {name} is a table in a list: write [[{name}]], with two brackets");
            self.error(Place::Line(line), name, &text);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            match item {
                Value::Table(table) => {
                    let first = table.iter().map(|entry| entry.line).min();
                    tables.push((first.unwrap_or(line), table));
                }
                Value::Text(_)
                | Value::Integer(_)
                | Value::Boolean(_)
                | Value::List(_)
                | Value::Fraction(_)
                | Value::Other(_) => {
                    let text = format!("a {name} is a table: write [[{name}]] above its keys");
                    self.error(Place::Line(line), name, &text);
                }
            }
        }
        tables
    }

    /// The keys that follow are those of one table of a list.
    fn item(&mut self, name: &'static str, index: usize, table: Table) {
        self.close();
        self.here = Here {
            section: name,
            prefix: format!("{name}[{index}]."),
            table,
        };
    }

    /// Everything has been asked for: what is left over is unknown.
    pub(crate) fn finish(&mut self) {
        self.close();
        for entry in std::mem::take(&mut self.root).into_entries() {
            self.unknown("", &entry);
        }
        for name in std::mem::take(&mut self.variables).into_keys() {
            let near = did_you_mean(&name, self.known_variables.iter().map(String::as_str));
            let fix = near.unwrap_or_else(|| {
                "it is written ONLYONCE_, the section, the key; or unset it".to_owned()
            });
            let text = format!("no key has this variable: {fix}");
            self.error(Place::Variable(name), "", &text);
        }
    }

    fn close(&mut self) {
        let section = self.here.section;
        for entry in std::mem::take(&mut self.here.table).into_entries() {
            self.unknown(section, &entry);
        }
    }

    fn unknown(&mut self, section: &str, entry: &Entry) {
        let (key, is_table) = (&entry.key, matches!(entry.value, Value::Table(_)));
        let here = self.known.get(section).into_iter().flatten().copied();
        let sections = self.known.keys().copied();
        let near = if section.is_empty() {
            did_you_mean(key, here.chain(sections))
        } else {
            did_you_mean(key, here)
        };
        let fix = near.or_else(|| self.elsewhere(key)).unwrap_or_else(|| {
            "remove it; config.default.toml in the project's sources has every key".to_owned()
        });
        let what = if is_table { "section" } else { "key" };
        let within = match section {
            "" => String::new(),
            list if LISTS.contains(&list) => format!(" in [[{list}]]"),
            section => format!(" in [{section}]"),
        };
        let text = format!("unknown {what} \"{key}\"{within}: {fix}");
        self.error(Place::Line(entry.line), "", &text);
    }

    /// Where a key of this name, or nearly, belongs.
    fn elsewhere(&self, key: &str) -> Option<String> {
        let place = |section: &str| match section {
            "" => "at the top, above the first section".to_owned(),
            list if LISTS.contains(&list) => format!("to a [[{list}]]"),
            section => format!("to the section [{section}]"),
        };
        let exact = self.known.iter().find(|(_, keys)| keys.contains(key));
        let exact = exact.map(|(section, _)| place(section));
        let profile = PROFILE_KEYS.contains(&key);
        let profile = profile.then(|| "to a profile, [profiles.NAME]".to_owned());
        let places: Vec<_> = exact.into_iter().chain(profile).collect();
        if !places.is_empty() {
            return Some(format!("it belongs {}", places.join(", or ")));
        }
        self.known.iter().find_map(|(section, keys)| {
            let near = did_you_mean(key, keys.iter().copied())?;
            Some(format!("{near} That one belongs {}", place(section)))
        })
    }

    pub(crate) fn error(&mut self, place: Place, key: &str, text: &str) {
        self.errors.push(Finding {
            place,
            key: key.to_owned(),
            text: text.to_owned(),
        });
    }

    /// The value that wins, and where it was written.
    fn winner<T: Field>(&mut self, name: &'static str) -> Option<(Place, Value)> {
        let Here { section, table, .. } = &mut self.here;
        let table = if section.is_empty() {
            &mut self.root
        } else {
            table
        };
        let from_file = table.take(name);
        let from_file = from_file.map(|entry| (Place::Line(entry.line), entry.value));
        if LISTS.contains(section) {
            return from_file;
        }
        let variable = match *section {
            "" => format!("{PREFIX}{}", name.to_uppercase()),
            section => format!("{PREFIX}{}_{}", section.to_uppercase(), name.to_uppercase()),
        };
        let from_variable = self.variables.remove(&variable);
        self.known_variables.push(variable.clone());
        let flag = self
            .flags
            .iter()
            .find(|(of, key, ..)| of == section && *key == name);
        let from_flag = flag.map(|(.., flag, text)| (Place::Flag(flag), T::from_text(text)));
        from_flag
            .or_else(|| from_variable.map(|text| (Place::Variable(variable), T::from_text(&text))))
            .or(from_file)
    }
}

fn named_profile(table: &Table) -> Option<String> {
    let entry = table.iter().find(|entry| entry.key == "profile")?;
    match &entry.value {
        Value::Text(name) => Some(name.clone()),
        Value::Integer(_)
        | Value::Fraction(_)
        | Value::Boolean(_)
        | Value::List(_)
        | Value::Table(_)
        | Value::Other(_) => None,
    }
}

impl Visitor for Reader {
    fn section(&mut self, name: &'static str) {
        self.close();
        self.known.entry(name).or_default();
        let table = match self.root.take(name) {
            None => Table::default(),
            Some(Entry {
                value: Value::Table(table),
                ..
            }) => table,
            Some(Entry { line, value, .. }) => {
                let text = format!("this is {}: write it as a section, [{name}]", value.kind());
                self.error(Place::Line(line), name, &text);
                Table::default()
            }
        };
        self.here = Here {
            section: name,
            prefix: format!("{name}."),
            table,
        };
    }

    fn key<T: Field>(&mut self, name: &'static str, value: &mut T) {
        self.known
            .entry(self.here.section)
            .or_default()
            .insert(name);
        let Some((place, given)) = self.winner::<T>(name) else {
            return;
        };
        let key = format!("{}{name}", self.here.prefix);
        match T::read(&given) {
            Ok(read) => *value = read,
            Err(reasons) => {
                let shown = if LISTS.contains(&self.here.section) {
                    name
                } else {
                    &key
                };
                for reason in reasons {
                    self.errors.push(Finding {
                        place: place.clone(),
                        key: shown.to_owned(),
                        text: reason,
                    });
                }
            }
        }
        self.places.insert(key, place);
    }
}

#[cfg(test)]
mod tests {
    use onlyonce_http::Profile;

    use super::*;

    /// A key of profiles that is not in the list is said to belong nowhere.
    #[test]
    fn every_key_of_a_profile_is_known_here() {
        let wrong = Profile::parse("nothing-of-this-name = 1").unwrap_err();
        let names = wrong.reason.split_once("write one of ").unwrap().1;
        let names: BTreeSet<_> = names.split(", ").collect();
        assert_eq!(names, PROFILE_KEYS.into_iter().collect());
    }
}
