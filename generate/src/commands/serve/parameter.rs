//! A parameter of a route, as the API's description has it.

/// A parameter's name, type and description.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// Its type in JSON; `None` if it may have several.
    pub(super) kind: Option<&'static str>,
    pub(super) about: &'static str,
}

impl Parameter {
    /// A parameter that may have several types.
    pub(super) const fn any(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: None, about }
    }

    pub(super) const fn array(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Some("array"), about }
    }

    pub(super) const fn boolean(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Some("boolean"), about }
    }

    pub(super) const fn integer(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Some("integer"), about }
    }

    pub(super) const fn number(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Some("number"), about }
    }

    pub(super) const fn object(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Some("object"), about }
    }

    pub(super) const fn string(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Some("string"), about }
    }
}
