//! What a configuration key is, and the macro that turns the statement of all keys into a struct
//! and a table.

use toml::Value;

use crate::error::ConfigError;

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number from the first to the second, both included.
    Count(u64, u64),
    /// A finite number from the first to the second, both included.
    Real(f64, f64),
    /// A finite number above the first, at most the second.
    Above(f64, f64),
    /// A finite number from the first, below the second.
    Below(f64, f64),
    /// A text, of which "" may be a value or not.
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
    /// The name, in the configuration file and wherever a person sets it.
    pub name: &'static str,
    /// Values allowed.
    pub kind: Kind,
    /// What one of it is; empty where the value has no unit.
    pub unit: &'static str,
    /// The value of a key left out, as TOML writes it; without one the program chooses from the
    /// text and the device (see `resolve`), and says why.
    pub default: Option<&'static str>,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    /// What other trainers call it; only used to suggest the right name.
    pub elsewhere: &'static [&'static str],
}

/// Rows under one heading.
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// Its keys, in the order in which they are written.
    pub keys: &'static [Key],
}

/// Steps and intervals stop here; far beyond any run, and exact in TOML's 64-bit integers.
pub const MANY: u64 = 1_000_000_000_000;

/// What a key without a default takes beside its range, as long as something is left to choose.
pub(super) const OR_AUTO: &str = ", or \"auto\"";

impl Key {
    /// The range in words, with the unit.
    pub fn range(&self) -> String {
        let range = match self.kind {
            Kind::Count(low, MANY) => format!("whole number, {low} or more"),
            Kind::Count(low, high) => format!("whole number, {low} to {high}"),
            Kind::Real(low, high) if low > 0.0 => format!("number, {low:e} to {high}"),
            Kind::Real(low, high) => format!("number, {low} to {high}"),
            Kind::Above(low, high) => format!("number above {low}, at most {high}"),
            Kind::Below(low, high) => format!("number from {low}, below {high}"),
            Kind::Text { may_be_empty: true } => "text".into(),
            Kind::Text { may_be_empty: false } => "text, not empty".into(),
            Kind::Choice(words) => words.join(", "),
            Kind::Flag => "true or false".into(),
            Kind::Paths => "list of paths".into(),
            Kind::Texts => "list of texts".into(),
        };
        if self.unit.is_empty() { range } else { format!("{range}; {}", self.unit) }
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
        let takes = match self.kind {
            // A limit that no run reaches is said only where more is asked for.
            Kind::Count(low, MANY) if whole.is_some_and(|n| n > MANY) => format!("whole number, {low} to {MANY}"),
            _ => self.range(),
        } + or_auto;
        Err(ConfigError::NotAllowed { name: self.name, value: value.to_string(), takes })
    }
}

/// Makes the configuration and what somebody set of it, a field for each key, and the table of the
/// keys, in the order in which they are stated: `name: type = default, range, unit, meaning, [names
/// elsewhere];`.
macro_rules! keys {
    ($($title:literal {$(
        $name:ident: $type:ty = $default:tt, $kind:expr, $unit:literal, $meaning:literal, [$($elsewhere:literal),*];
    )*})*) => {
        /// A run with nothing left open.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct TrainConfig {
            $($(
                #[doc = keys!(@told $meaning, $unit)]
                pub $name: $type,
            )*)*
        }

        /// What somebody set of a run: some keys with a value, which is checked where it is read
        /// and again before anything is chosen; the others keep their default or are chosen.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Settings {
            $($(
                #[doc = keys!(@told $meaning, $unit)]
                pub $name: Option<$type>,
            )*)*
            /// The keys that were written as whole numbers: so they are shown again.
            #[serde(skip)]
            pub(super) whole: Vec<String>,
        }

        /// The table, in the order of a written file.
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
