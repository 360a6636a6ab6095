//! The definition of a configuration key, and the macro that generates structs and a table from the
//! list of all keys.

use toml::Value;

use crate::error::ConfigError;

/// The values that a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number between the two, both included.
    Count(u64, u64),
    /// A finite number between the two, both included.
    Real(f64, f64),
    /// A finite number above the first, at most the second.
    Above(f64, f64),
    /// A finite number at least the first, below the second.
    Below(f64, f64),
    /// A text.
    #[allow(missing_docs)]
    Text { may_be_empty: bool },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// true or false.
    Flag,
    /// A list of paths.
    Paths,
    /// A list of texts.
    Texts,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name, in the configuration file and in `key=value`.
    pub name: &'static str,
    /// The allowed values.
    pub kind: Kind,
    /// The unit of the value; empty if it has none.
    pub unit: &'static str,
    /// The default, as TOML writes it. Without one the program chooses from the text and the device
    /// (see `resolve`), and says why.
    pub default: Option<&'static str>,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    /// Its names in other trainers; only used to suggest the right name.
    pub elsewhere: &'static [&'static str],
}

/// Keys under one heading.
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// Its keys, in the order in which they are written.
    pub keys: &'static [Key],
}

/// The largest number of steps; far beyond any run, and exact in TOML's 64-bit integers.
pub const MANY: u64 = 1_000_000_000_000;

/// Follows the range of a key without a default, in a configuration that is not resolved yet.
pub(super) const OR_AUTO: &str = ", or \"auto\"";

impl Key {
    /// The range in words, with the unit.
    pub fn range(&self) -> String {
        let range = self.range_without_unit();
        if self.unit.is_empty() { range } else { format!("{range}; {}", self.unit) }
    }

    fn range_without_unit(&self) -> String {
        match self.kind {
            Kind::Count(low, MANY) => format!("whole number of {low} or more"),
            Kind::Count(low, high) => format!("whole number from {low} to {high}"),
            Kind::Real(low, high) if low > 0.0 => format!("number from {low:e} to {high}"),
            Kind::Real(low, high) => format!("number from {low} to {high}"),
            Kind::Above(low, high) => format!("number above {low}, at most {high}"),
            Kind::Below(low, high) => format!("number from {low} to below {high}"),
            Kind::Text { may_be_empty: true } => "text".into(),
            Kind::Text { may_be_empty: false } => "text that is not empty".into(),
            Kind::Choice(words) => words.join(", "),
            Kind::Flag => "true or false".into(),
            Kind::Paths => "list of paths".into(),
            Kind::Texts => "list of texts".into(),
        }
    }

    /// Checks one value against the range; the error names key, value and range.
    pub fn check(&self, value: &Value) -> Result<(), ConfigError> {
        let real = match value {
            Value::Integer(whole) => Some(*whole as f64),
            Value::Float(real) if real.is_finite() => Some(*real),
            _ => None,
        };
        let whole = value.as_integer().and_then(|whole| u64::try_from(whole).ok());
        let fits = match self.kind {
            Kind::Count(low, high) => whole.is_some_and(|n| (low..=high).contains(&n)),
            Kind::Real(low, high) => real.is_some_and(|x| (low..=high).contains(&x)),
            Kind::Above(low, high) => real.is_some_and(|x| low < x && x <= high),
            Kind::Below(low, high) => real.is_some_and(|x| low <= x && x < high),
            Kind::Text { may_be_empty } => value.as_str().is_some_and(|text| may_be_empty || !text.is_empty()),
            Kind::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Kind::Flag => value.is_bool(),
            Kind::Texts => value.as_array().is_some_and(|texts| texts.iter().all(Value::is_str)),
            Kind::Paths => value
                .as_array()
                .is_some_and(|paths| paths.iter().all(|path| path.as_str().is_some_and(|path| !path.is_empty()))),
        };
        if fits {
            return Ok(());
        }
        if self.kind == Kind::Paths
            && value.as_array().is_some_and(|paths| paths.iter().any(|path| path.as_str() == Some("")))
        {
            return Err(ConfigError::NoPath(self.name));
        }
        let or_auto = if self.default.is_none() { OR_AUTO } else { "" };
        let range = match self.kind {
            // The error names this limit only if the value is above it.
            Kind::Count(low, MANY) if whole.is_some_and(|n| n > MANY) => format!("whole number from {low} to {MANY}"),
            _ => self.range_without_unit(),
        };
        let article = match self.kind {
            Kind::Choice(_) => "one of: ",
            Kind::Flag => "",
            _ => "a ",
        };
        let unit = if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) };
        let takes = format!("{article}{range}{unit}{or_auto}");
        Err(ConfigError::NotAllowed { name: self.name, value: value.to_string(), takes })
    }
}

/// Generates `TrainConfig` and `Settings`, with a field for each key, and the table of the keys, in
/// this order. A key is `name: type = default, range, unit, meaning, [names elsewhere];`.
macro_rules! keys {
    ($($title:literal {$(
        $name:ident: $type:ty = $default:tt, $kind:expr, $unit:literal, $meaning:literal, [$($elsewhere:literal),*];
    )*})*) => {
        /// The complete configuration of a run: a value for every key.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct TrainConfig {
            $($(
                #[doc = keys!(@told $meaning, $unit)]
                pub $name: $type,
            )*)*
        }

        /// The keys that the user set. Values are checked when they are read and again before
        /// anything is chosen; the other keys take their default or are chosen.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Settings {
            $($(
                #[doc = keys!(@told $meaning, $unit)]
                pub $name: Option<$type>,
            )*)*
            /// The keys that were written as whole numbers, so that messages show them as such.
            #[serde(skip)]
            pub(super) whole: Vec<String>,
        }

        /// The table of all keys, in the order of a saved configuration.
        pub const GROUPS: &[Group] = &[$(Group {
            title: $title,
            keys: &[$(Key {
                name: stringify!($name),
                kind: $kind,
                unit: $unit,
                default: keys!(@default $default),
                meaning: $meaning,
                elsewhere: &[$($elsewhere),*],
            }),*],
        }),*];
    };
    (@told $meaning:literal, "") => { $meaning };
    (@told $meaning:literal, $unit:literal) => { concat!($meaning, " (", $unit, ")") };
    (@default auto) => { None };
    (@default $value:tt) => { Some(stringify!($value)) };
}

pub(super) use keys;
