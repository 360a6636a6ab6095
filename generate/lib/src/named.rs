//! Enums with named values: each value's name in flags, files and JSON, and its meaning, are stated
//! once.

/// An enum whose values have names.
pub trait Named: Copy + Send + Sync + 'static {
    /// All values, in listing order.
    const ALL: &'static [Self];

    /// Its name in flags and files.
    fn name(self) -> &'static str;

    /// Its meaning, in a phrase.
    fn meaning(self) -> &'static str;

    /// The value with this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}

/// Declares a [`Named`] enum. The doc comment above a value is its meaning.
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
