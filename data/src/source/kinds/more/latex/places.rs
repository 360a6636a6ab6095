//! Finds the ends of formulas, braces and paragraphs in LaTeX.

/// Whether the next line is blank, which ends a paragraph.
pub fn begins_blank(text: &str) -> bool {
    text.trim_start_matches([' ', '\t']).starts_with('\n')
}

/// The text after blanks and at most one line end.
pub fn after_blanks(text: &str) -> &str {
    let line = text.trim_start_matches([' ', '\t']);
    line.strip_prefix('\n').map_or(line, |next| next.trim_start_matches([' ', '\t']))
}

/// The text after blanks, a line end and comments, where an argument may follow.
pub fn after_comments(text: &str) -> &str {
    let mut behind = after_blanks(text);
    while let Some(comment) = behind.strip_prefix('%') {
        behind = comment.split_once('\n').map_or("", |(_, next)| next.trim_start_matches([' ', '\t']));
    }
    behind
}

/// The length of a Beamer overlay specification, such as `<2->`; 0 if there is none.
pub fn overlay_length(text: &str) -> usize {
    const LONGEST: usize = 40;
    let Some(inside) = text.strip_prefix('<').map(str::as_bytes) else { return 0 };
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-+,.:|@() ".contains(byte);
    let length = inside.iter().take(LONGEST).take_while(is_part).count();
    let has_number = inside[..length].iter().any(|&byte| byte.is_ascii_digit() || byte == b'+');
    if has_number && inside.get(length) == Some(&b'>') { length + 2 } else { 0 }
}

/// The length of a formula up to its end `mark`; if its paragraph ends first, `Err` of its length.
pub fn formula_length(text: &str, mark: &str) -> Result<usize, usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'$' if text[at..].starts_with(mark) => return Ok(at),
            b'\n' if begins_blank(&text[at + 1..]) => return Err(at),
            _ => {}
        }
    }
    Err(text.len())
}

/// The offsets of each opening brace and its closing brace (`u32::MAX` if none), in order.
pub fn braces(text: &str) -> Vec<(u32, u32)> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'{' => {
                open.push(pairs.len());
                pairs.push((at as u32, u32::MAX));
            }
            b'}' => {
                if let Some(pair) = open.pop() {
                    pairs[pair].1 = at as u32;
                }
            }
            _ => {}
        }
    }
    pairs
}
