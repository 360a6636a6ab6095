//! Reads XML as office programs write it, with tags by their local names. Entities that a document
//! defines are not expanded.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion, escape::resolve_predefined_entity};

/// A tag or a piece of text.
pub enum Node<'a> {
    /// A start tag, with its name without a prefix.
    Start(&'a str, &'a BytesStart<'a>),
    /// An end tag; every start tag has one, also in `<a/>`.
    End(&'a str),
    /// A piece of the text between tags.
    Text(&'a str),
}

/// Calls `visit` with each node of a document, in order.
///
/// # Errors
/// When it is not well formed.
pub fn for_each_node(document: &str, visit: &mut dyn FnMut(Node<'_>)) -> Result<(), quick_xml::Error> {
    let mut reader = Reader::from_str(document);
    reader.config_mut().expand_empty_elements = true;
    loop {
        match reader.read_event()? {
            Event::Start(tag) => visit(Node::Start(local(tag.name().as_ref()), &tag)),
            Event::End(tag) => visit(Node::End(local(tag.name().as_ref()))),
            Event::Text(text) => visit(Node::Text(&text.xml_content(XmlVersion::Implicit1_0))),
            Event::CData(text) => visit(Node::Text(&text.xml_content(XmlVersion::Implicit1_0))),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(character)) => visit(Node::Text(character.encode_utf8(&mut [0; 4]))),
                _ => visit(Node::Text(resolve_predefined_entity(&reference).unwrap_or_default())),
            },
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

/// The value of an attribute, by its name without a prefix.
pub fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = tag.attributes();
    let found = attributes.with_checks(false).flatten().find(|attribute| local(attribute.key.as_ref()) == name)?;
    found.normalized_value(XmlVersion::Implicit1_0).ok().map(|value| value.into_owned())
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}
