//! transformers' own tag, `{% generation %}`: it says which part of a template's text is the
//! model's, for training, and shows nothing.

/// What stands in its place: a tag of Jinja's that shows nothing either. So the blanks around it,
/// with `{%-` and `-%}` or without, are those that the template means.
const IN_ITS_PLACE: [(&str, &str); 2] = [("generation", "if true"), ("endgeneration", "endif")];

/// A template without these tags.
pub(super) fn without(source: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin);
        text.push_str(before);
        rest = match replaced(tag) {
            Some((other, behind)) => {
                text.push_str(&other);
                behind
            }
            None => {
                text.push_str("{%");
                &tag[2..]
            }
        };
    }
    text + rest
}

/// What stands in the place of the tag that a text begins with, if it is one of these, and what
/// follows it.
fn replaced(tag: &str) -> Option<(String, &str)> {
    let signs = ['-', '+'];
    let name = tag.strip_prefix("{%")?.trim_start_matches(signs).trim_start();
    let (end, other) = IN_ITS_PLACE.iter().find_map(|(own, other)| Some((name.strip_prefix(own)?, other)))?;
    let behind = end.trim_start().trim_start_matches(signs).strip_prefix("%}")?;
    let (begin, end) = (&tag[..tag.len() - name.len()], &end[..end.len() - behind.len()]);
    Some((format!("{begin}{other}{end}"), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_taken_out_and_nothing_else() {
        assert_eq!(without("a{% generation %}b{% endgeneration %}c"), "a{% if true %}b{% endif %}c");
        assert_eq!(without("{%- generation -%}{%endgeneration+%}"), "{%- if true -%}{%endif+%}");
        for other in ["", "{%", "{% generations %}", "{% set generation = 1 %}{{ generation }}", "{% generation", "{%-"]
        {
            assert_eq!(without(other), other);
        }
    }
}
