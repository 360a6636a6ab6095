//! Enums whose values have names: what a flag, a file and JSON call each, and what it means, stated
//! once.

/// One of a few values that have names.
pub trait Named: Copy + Send + Sync + 'static {
    /// All of them, in the order in which they are listed.
    const ALL: &'static [Self];

    /// What flags and files call it.
    fn name(self) -> &'static str;

    /// What it means, in a phrase.
    fn meaning(self) -> &'static str;

    /// The value of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}

/// An enum with a name for each value; the comment above a value is its meaning.
macro_rules! named {
    ($(#[$of_enum:meta])* $vis:vis $type:ident $(default $default:ident)? {
        $($(#[doc = $meaning:literal])+ $value:ident = $name:literal,)+
    }) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $vis enum $type {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $value,)+
        }

        $(impl Default for $type {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::named::Named for $type {
            const ALL: &'static [Self] = &[$(Self::$value,)+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            fn meaning(self) -> &'static str {
                match self {
                    $(Self::$value => concat!($($meaning),+).trim().trim_end_matches('.'),)+
                }
            }
        }
    };
}

pub(crate) use named;
