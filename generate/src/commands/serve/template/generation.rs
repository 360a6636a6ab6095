//! transformers' tag `{% generation %}`: it marks the model's part of the text for training, and
//! renders as nothing.

/// Replacements: Jinja tags that render as nothing too. They preserve the whitespace control around
/// the tag, with `{%-` and `-%}` or without.
const REPLACEMENTS: [(&str, &str); 2] = [("generation", "if true"), ("endgeneration", "endif")];

/// Replaces these tags in a template.
pub(super) fn strip_tags(source: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin);
        text.push_str(before);
        rest = match replacement(tag) {
            Some((other, after)) => {
                text.push_str(&other);
                after
            }
            None => {
                text.push_str("{%");
                &tag[2..]
            }
        };
    }
    text + rest
}

/// If the text begins with one of these tags: its replacement, and the text after the tag.
fn replacement(tag: &str) -> Option<(String, &str)> {
    let signs = ['-', '+'];
    let name = tag.strip_prefix("{%")?.trim_start_matches(signs).trim_start();
    let (end, other) = REPLACEMENTS.iter().find_map(|(own, other)| Some((name.strip_prefix(own)?, other)))?;
    let after = end.trim_start().trim_start_matches(signs).strip_prefix("%}")?;
    let (begin, end) = (&tag[..tag.len() - name.len()], &end[..end.len() - after.len()]);
    Some((format!("{begin}{other}{end}"), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_taken_out_and_nothing_else() {
        assert_eq!(strip_tags("a{% generation %}b{% endgeneration %}c"), "a{% if true %}b{% endif %}c");
        assert_eq!(strip_tags("{%- generation -%}{%endgeneration+%}"), "{%- if true -%}{%endif+%}");
        for other in ["", "{%", "{% generations %}", "{% set generation = 1 %}{{ generation }}", "{% generation", "{%-"]
        {
            assert_eq!(strip_tags(other), other);
        }
    }
}
